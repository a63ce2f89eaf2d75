package restore_test

import (
	"context"
	"fmt"
	"os"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
)

// A dry run says what a restore would do, and why. It changes nothing.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "checkpoints")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	report, err := restore.Run(context.Background(), restore.Options{Store: checkpoint.OpenStore(dir), DryRun: true})
	if err != nil {
		panic(err)
	}
	for _, step := range report.Parents {
		fmt.Printf("in the host: %s: %s\n", step, step.Reason)
	}
	for _, o := range report.Outcomes {
		fmt.Printf("%s: %s: %s\n", o.Attachment, o.State, o.FullReason())
	}
	fmt.Println("as recorded:", report.Complete())
	// Output: as recorded: true
}
