"""Rules with a bound on what they may cost, certified on texts that did not choose them."""
