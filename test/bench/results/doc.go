// Package results is what the benchmarks measured: as a file that can be read again, as the tables of docs/benchmarks.md, and as
// the charts of docs/images. The charts need no second measurement.
package results
