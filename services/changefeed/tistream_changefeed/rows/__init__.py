"""Row events as a sink gets them: split, filtered, routed. Pure."""
