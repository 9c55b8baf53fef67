"""Dead letters: messages that stand for events which a feed leaves out, for example because a person named them."""
