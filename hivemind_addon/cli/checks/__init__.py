"""The checks of `hivemind doctor`: each looks at one thing and answers findings."""
