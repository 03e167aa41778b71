"""Work done elsewhere: tasks, the workers that do them, and the supervisor of those."""
