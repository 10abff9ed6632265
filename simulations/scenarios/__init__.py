"""The scenarios, each with the numbers that it must reach (scheduling.md section 4, design.md section 5)."""
