"""The demo: a show of what a chat can do, and answers about usechat from its documentation, offline."""
