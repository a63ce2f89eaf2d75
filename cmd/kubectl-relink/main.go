// Command kubectl-relink is the plugin of kubectl for clusters with relink: it shows the agents of all nodes and the address pools, says what
// is wrong with the pools, declares nodes dead, and drains them.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/pool"
)

// version is set by the linker. pkg/cniplugin, which has that of the other programs, builds for Linux only: people run kubectl anywhere.
var version = "development"

func main() { cli.Main(run) }

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, newRoot(), nil, args, stdout, stderr)
}

func newRoot() *cobra.Command {
	var c connection
	root := &cobra.Command{
		Use:         "kubectl-relink",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl relink"},
		Short:       "Show relink on all nodes of a cluster, and its address pools",
		Long: `Show relink on all nodes of a cluster, and its address pools. It asks the Kubernetes API as kubectl
does, with your own credentials. The ClusterRoles relink-viewer and relink-operator, and the Role
relink-viewer, have the rights that it needs. What one node knows, relink shows there.

Exit status of every verb:
  0  all is well, or was done
  1  something is not, or was not done; the output names it
  2  the command line or the environment keeps it from looking`,
		Example: `  kubectl relink status        # the agent of each node, and what is lost
  kubectl relink check         # what is wrong with the pools, and what ends it
  kubectl relink pools         # how full they are`,
		Version:           version,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // kubectl has completions of its own.
	}
	c.addFlags(root)
	cli.AddGroup(root, "Look:", newStatus(&c), newCheck(&c), newPools(&c), newBlocks(&c), newShow(&c))
	cli.AddGroup(root, "Change:", newFence(&c), newDrain(&c))
	cli.CompleteRoot(root)
	return root
}

// connection says which API to ask, and as whom. namespace is that of relink-agent.
type connection struct{ kubeconfig, context, namespace string }

// addFlags adds the flags that kubectl has.
func (c *connection) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "`file` with your credentials (default $KUBECONFIG, else ~/.kube/config)")
	cli.Must(root.MarkPersistentFlagFilename("kubeconfig"))
	flags.StringVar(&c.context, "context", "", "`name` of the context in that file (default its current one)")
	flags.StringVarP(&c.namespace, "namespace", "n", "relink-system", "`namespace` of relink-agent")
}

// client returns a client of the API. It makes no request.
func (c *connection) client() (*objects.Client, error) {
	client, err := objects.ConnectAsPerson(c.kubeconfig, c.context, "kubectl-relink", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("the Kubernetes API cannot be asked: %w", err)
	}
	return client, nil
}

// checkName fails for an argument that is the name of no object of the API. argument is its word in the usage.
func checkName(argument, name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("invalid %s %q: %s", argument, name, problems[0])
	}
	return nil
}

// present asks the API about pools, and prints its answer.
func present[T any](c *connection, cmd *cobra.Command, ask func(pool.API, context.Context) ([]T, error), write func([]T, *cli.Screen)) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	answer, err := ask(objects.NewPoolAPI(client), cmd.Context())
	if err != nil {
		return err
	}
	s := screenOf(cmd)
	return s.Present(cli.OrEmpty(answer), true, func() { write(answer, s) })
}
