package pool

// Target is how many addresses a node should have of a pool if used of them are leased. It has half a block and more in
// reserve, and never less than one block.
func Target(blockSize, used int) int {
	// blockSize x ceil(0.5 + used/blockSize), in integers.
	halves := blockSize + 2*used
	return blockSize * ((halves + 2*blockSize - 1) / (2 * blockSize))
}
