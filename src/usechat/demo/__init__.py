"""The demo: a flow that answers questions about usechat from its own documentation, offline."""
