package keyset

// Few sets how many keys are sorted without a second thought.
func Few(n int) { few = n }
