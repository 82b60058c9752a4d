"""The events of a flow run, and their translation into parts."""
