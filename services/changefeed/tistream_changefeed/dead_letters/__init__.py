"""Dead letters: messages that replace events which a feed leaves out, for example because a person named them."""
