// Package e2e runs the stories. Those of testdata/*.txt run in the test machine on a real NIC driver, those of testdata/native/*.txt on hosts
// in namespaces.
package e2e
