// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/workloads"
)

func newStopCommand() *cobra.Command {
	var final bool
	cmd := &cobra.Command{
		Use:     "stop NAME...",
		Aliases: []string{"suspend"},
		Short:   "Stop workloads; start runs them again",
		Long: `Stop workloads by the way of their kind: a Job is suspended, a Deployment gets no
replicas, a Notebook its stop annotation. The object, its history and its volumes stay, and
sluice start runs it again. A pod without a controller cannot be stopped, only deleted.`,
		Example: `  # Stop a workload
  sluice stop training

  # Stop a Deployment and a Job of a project
  sluice stop deployment/notebook job/training -p thesis-mueller`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := addWorkloadFlags(cmd, namespaceScope)
	cmd.Flags().BoolVar(&final, "final", false, "Also stop workloads that cannot be started again")
	cmd.ValidArgsFunction = flags.completeWorkloads
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return flags.forEachWorkload(cmd, args, func(ctx context.Context, c *workloadClient, w *workloads.Workload) error {
			return stopWorkload(ctx, c, w, final, cmd.OutOrStdout())
		})
	}
	return cmd
}

func newStartCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start NAME...",
		Short: "Start stopped workloads again",
		Long: `Start workloads that you or Sluice stopped, with their former number of replicas. A
workload that Sluice stopped at its limit may start again when its time is over
(sluice.dev/stopped-until); sluice get shows it.`,
		Example: `  # Start a workload again
  sluice start training`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := addWorkloadFlags(cmd, namespaceScope)
	cmd.ValidArgsFunction = flags.completeWorkloads
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return flags.forEachWorkload(cmd, args, func(ctx context.Context, c *workloadClient, w *workloads.Workload) error {
			return startWorkload(ctx, c, w, cmd.OutOrStdout())
		})
	}
	return cmd
}

// forEachWorkload finds all workloads that the user named before it changes the first.
func (f *workloadFlags) forEachWorkload(
	cmd *cobra.Command, names []string, change func(context.Context, *workloadClient, *workloads.Workload) error,
) error {
	c, err := f.connectWorkloads(cmd)
	if err != nil {
		return err
	}
	var found []*workloads.Workload
	for _, name := range names {
		w, err := c.reader.Find(cmd.Context(), c.namespace, name)
		if err != nil {
			return err
		}
		found = append(found, w)
	}
	for _, w := range found {
		if err := change(cmd.Context(), c, w); err != nil {
			return err
		}
	}
	return nil
}

func stopWorkload(ctx context.Context, c client.Client, w *workloads.Workload, final bool, output io.Writer) error {
	name := referenceText(w)
	changes, err := w.Stop(policytime.MachineNow(), final)
	switch {
	case err != nil:
		return err
	case len(changes) == 0:
		fmt.Fprintf(output, "%s is stopped already\n", name)
		return nil
	}
	for _, change := range changes {
		if err := applyChange(ctx, c, change); err != nil {
			return explainChange(err, "stop", w, change)
		}
	}
	again := "; `sluice start " + name + "` runs it again"
	if !w.Kind.IsReversible() {
		again = "; it cannot be started again"
	}
	fmt.Fprintf(output, "%s stopped%s\n", name, again)
	return nil
}

func startWorkload(ctx context.Context, c client.Client, w *workloads.Workload, output io.Writer) error {
	name := referenceText(w)
	change, err := w.Start()
	switch {
	case err != nil:
		return err
	case change == nil:
		fmt.Fprintf(output, "%s is not stopped\n", name)
		return nil
	}
	if err := applyChange(ctx, c, *change); err != nil {
		return explainChange(err, "start", w, *change)
	}
	fmt.Fprintf(output, "%s started\n", name)
	return nil
}

// referenceText returns KIND/NAME in the form in which commands accept it.
func referenceText(w *workloads.Workload) string {
	return printer.Sanitize(strings.ToLower(w.Object.GetKind()) + "/" + w.Object.GetName())
}

// applyChange writes a change to the object that was read, and to no other of its name.
func applyChange(ctx context.Context, c client.Client, change workloads.Change) error {
	workloadkind.SetPatchValue(change.Patch, string(change.Object.GetUID()), "metadata", "uid")
	raw, err := json.Marshal(change.Patch)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	patched := &unstructured.Unstructured{}
	patched.SetGroupVersionKind(change.Object.GroupVersionKind())
	patched.SetNamespace(change.Object.GetNamespace())
	patched.SetName(change.Object.GetName())
	return c.Patch(ctx, patched, client.RawPatch(types.MergePatchType, raw), client.FieldOwner(v1alpha1.FieldManagerCLI))
}

// explainChange adds what the user can do if Kueue's Workload must not be changed: Kueue would resume a workload
// that is only suspended.
func explainChange(err error, operation string, w *workloads.Workload, change workloads.Change) error {
	name := referenceText(w)
	if apierrors.IsForbidden(err) && change.Object == w.Queued {
		hint := "; Kueue holds it, and only an administrator may change its Workload"
		if operation == "stop" {
			hint += ": `sluice delete " + name + "` ends it"
		}
		return fmt.Errorf("%s %s: %w%s", operation, name, err, hint)
	}
	return fmt.Errorf("%s %s: %w", operation, name, err)
}
