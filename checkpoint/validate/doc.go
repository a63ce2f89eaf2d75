// Package validate says what is wrong with network configurations, before a pod needs them. The plugins' own readers judge what is
// written. A look at this node tells what it lacks.
//
// Read finds the networks in a file, and readChain takes each apart. Needs is what has to be known of the node for them, and ProbeNode finds it
// out as a Node. The judge functions decide: they take plain data and return a ConfigFinding for each thing that is wrong. Run does all
// of it and returns a ConfigReport.
package validate
