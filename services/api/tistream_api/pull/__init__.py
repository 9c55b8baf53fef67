"""One pull: where it begins, what a page or stream has, when it ends."""
