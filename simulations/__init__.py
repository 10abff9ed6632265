"""Simulations: the scheduler's scripts and the door's decisions in discrete events on a clock of their own."""
