package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/cmd/internal/cli"
)

// pausePatience is how long a pause waits for a restore of the agent to end.
const pausePatience = 30 * time.Second

func newPause() *cobra.Command {
	var length time.Duration
	var reason string
	cmd := newVerb("pause", func(cmd *cobra.Command, _ []string) error {
		p, err := control.Client{Patience: pausePatience}.Pause(cmd.Context(), length, reason)
		if err != nil {
			return err
		}
		screenOf(cmd).Info("relink-agent is " + pausedText(p, time.Now()))
		return nil
	})
	cli.AddDuration(cmd, &length, true, "for", "end the pause after this `time`, such as 10m (default: relink resume ends it)")
	cmd.Flags().StringVar(&reason, "why", "", "`text` that relink status shows beside the pause")
	return cmd
}

func newResume() *cobra.Command {
	return newVerb("resume", func(cmd *cobra.Command, _ []string) error {
		if err := (control.Client{}).Resume(cmd.Context()); err != nil {
			return err
		}
		screenOf(cmd).Info("relink-agent is not paused")
		return nil
	})
}

// pausedText says how long a pause lasts, and why there is one.
func pausedText(p control.Pause, instant time.Time) string {
	text := "paused until relink resume"
	if remaining, limited := p.Remaining(); limited {
		text = fmt.Sprintf("paused until %s, for another %s", instant.Add(remaining).Local().Format("15:04:05"), humanDuration(remaining.Round(time.Second)))
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}
