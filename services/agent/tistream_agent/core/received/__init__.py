"""What streams have brought: which subscription each event belongs to, and how much there was of what."""
