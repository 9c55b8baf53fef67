"""One log backup as a source: what its bucket shows, and the release that follows."""
