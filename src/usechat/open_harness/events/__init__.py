"""What a runtime tells while a flow runs, and the parts that it becomes."""
