// Package e2e tells the stories of testdata/*.txt, each a script that runs in the test machine on a real NIC driver.
package e2e
