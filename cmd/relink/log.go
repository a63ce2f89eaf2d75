package main

import (
	"fmt"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/capture/netfix"
	"github.com/relink-cni/relink/checkpoint/forget"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/runlog"
)

// logRun writes what a run has changed to the journal or to syslog. A dry run changes nothing.
func logRun(dryRun bool, summary string, failures []string, err error) {
	if !dryRun {
		runlog.Current().Write(runlog.Run{Summary: summary, Failures: failures, Err: err})
	}
}

func logRestore(dryRun bool, report restore.Report, dir string, err error) {
	var failures []string
	for _, o := range report.Attachments {
		if o.Differs() {
			failures = append(failures, failure(o.Pod, o.Attachment, o.FullReason()))
		}
	}
	logRun(dryRun, summary(report, dir), append(failures, report.Problems...), err)
}

func logCapture(dryRun bool, report capture.InterfaceReport, err error) {
	var failures []string
	for _, o := range report.Interfaces {
		if o.State == capture.Refused || o.State == capture.Failed {
			failures = append(failures, failure(o.Pod, o.Attachment, o.Reason))
		}
	}
	logRun(dryRun, capturedSummary(report), append(failures, report.Problems...), err)
}

func logImport(dryRun bool, report netfix.FileReport, dir string, err error) {
	var failures []string
	for _, o := range report.Files {
		if o.State == netfix.Refused || o.State == netfix.Failed {
			failures = append(failures, o.Path+": "+o.Reason)
		}
	}
	logRun(dryRun, importedSummary(report, dir), failures, err)
}

func logForget(dryRun bool, report forget.CheckpointReport) {
	var failures []string
	for _, o := range report.Checkpoints {
		if o.State == forget.Kept || o.State == forget.Failed {
			failures = append(failures, failure(o.Pod, o.Attachment, o.Reason))
		}
	}
	logRun(dryRun, forgetSummary(report), failures, nil)
}

// failure names the attachment, and its pod if it is known.
func failure(pod attachment.Pod, key attachment.Key, reason string) string {
	if pod == (attachment.Pod{}) {
		return fmt.Sprintf("%s %s: %s", key.ContainerID, key.IfName, reason)
	}
	return fmt.Sprintf("%s %s (%s): %s", pod, key.IfName, key.ContainerID, reason)
}
