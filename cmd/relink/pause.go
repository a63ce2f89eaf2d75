package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/control"
)

// pausePatience is how long a pause waits for a restore of the agent to end.
const pausePatience = 30 * time.Second

func newPause() *cobra.Command {
	var length time.Duration
	var reason string
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Make relink-agent restore nothing for a while",
		Long: `Make relink-agent restore nothing for a while. If the agent is restoring, the command waits
until the restore has ended, 30 s at most. The agent still watches, and relink status shows what
is lost. Give a limit, so that a forgotten pause ends by itself. A new pause replaces the one
before.

Exit status 0: the agent is paused; 2: no agent runs, or the agent refused or did not
answer in time.`,
		Example: `  relink pause --for 10m --why firmware
  relink pause        # until relink resume`,
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := control.Client{Patience: pausePatience}.Pause(cmd.Context(), length, reason)
			if err != nil {
				return err
			}
			screenOf(cmd).info("relink-agent is " + pausedText(p, time.Now()))
			return nil
		},
	}
	addDuration(cmd, &length, true, "for", "end the pause after this `time`, such as 10m (default: relink resume ends it)")
	cmd.Flags().StringVar(&reason, "why", "", "`text` that relink status shows beside the pause")
	return cmd
}

func newResume() *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "End a pause of relink-agent",
		Long: `End a pause of relink-agent. The agent looks at everything and restores what was lost meanwhile.
It is no error if the agent is not paused.

Exit status 0: the agent is not paused; 2: no agent runs, or the agent refused or did not answer.`,
		Example: "  relink resume",
		Args:    takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := (control.Client{}).Resume(cmd.Context()); err != nil {
				return err
			}
			screenOf(cmd).info("relink-agent is not paused")
			return nil
		},
	}
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
