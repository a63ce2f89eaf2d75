// Package e2e runs the stories of testdata/*.txt. Each is a script that runs in the test machine on a real NIC driver.
package e2e
