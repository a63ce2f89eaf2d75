// Package results has the measurements of the benchmarks: as a file that can be read again, as the tables of
// docs/benchmarks.md, and as the charts of docs/images. So new charts need no new measurement.
package results
