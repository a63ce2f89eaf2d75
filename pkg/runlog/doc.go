// Package runlog writes to the journal or to syslog what a run of the command did, and who ran it.
package runlog
