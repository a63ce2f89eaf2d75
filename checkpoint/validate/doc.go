// Package validate says what is wrong with network configurations before a pod needs them: with what is written, by the readers of the
// plugins, and with this node, which may lack what they ask for.
//
// Read finds the networks in a file. Needs says what has to be known of the node for them, and Look finds that out. Judge decides, and
// touches nothing: networks and what is known of the node go in, findings come out. Run does it all.
package validate
