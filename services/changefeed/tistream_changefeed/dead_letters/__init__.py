"""Events that a feed leaves out because a person named them: the dead letter topic has them."""
