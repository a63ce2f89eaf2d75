// Package validate says what is wrong with network configurations, before a pod needs them. The plugins' own readers judge what is
// written, and libcni, as the runtime calls it. A look at this node tells what it lacks.
//
// collect finds the networks in files, and readChain takes each apart, both into one collected. A plugin has a list of what it needs of the node, and probeNode finds
// out what the Node has of it. The judge functions decide: they take plain data and add a ConfigFinding for each thing that is wrong. Run
// does all of it and returns a ConfigReport.
package validate
