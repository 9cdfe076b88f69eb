// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/workbench"
)

// policyDiff is the result of sluice policy diff.
type policyDiff struct {
	Policies []workbench.PolicyChange `json:"policies"`
	// Objects are the first objects on which the policies decide differently, and Affected is the number of all of them among
	// those evaluated.
	Objects   []workbench.Effect `json:"objects"`
	Affected  int                `json:"affected"`
	Evaluated int                `json:"evaluated"`
	// Skipped is the number of objects that could not be evaluated, and SkippedBecause the reason of the first one.
	Skipped        int    `json:"skipped"`
	SkippedBecause string `json:"skippedBecause,omitempty"`
}

// maxEffects limits the objects that are shown, and with them the memory.
const maxEffects = 100

func newPolicyDiffCommand() *cobra.Command {
	objects := true
	cmd := &cobra.Command{
		Use:   "diff DIRECTORY",
		Short: "Show what applying policies would change in a cluster",
		Long: `Show what applying the policies of a directory would change in a cluster: the policies that are new or different, with
their differences, those that are equal, and those that only the cluster has, which stay.

Then all pods and workloads in the namespaces of projects are evaluated as if they were created now, with the policies
of the cluster and with those after the change. The command shows the objects that would be refused, warned of or
changed in another way, at most 100 of them. Policies in DryRun are not evaluated. Nothing is changed. Existing objects
stay as they are in any case: policies are evaluated for new ones only.`,
		Example: `  # What would applying this directory change?
  sluice policy diff policies/

  # Only the policies
  sluice policy diff policies/ --objects=false`,
		Args: cobra.ExactArgs(1),
	}
	cluster := addClusterFlags(cmd, clusterScope)
	output := addTextOutputFlag(cmd)
	cmd.Flags().BoolVar(&objects, "objects", objects, "Evaluate the objects of the cluster")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		folder, err := loadPolicies(args[0])
		if err != nil {
			return err
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		result, err := diffPolicies(cmd, c, folder, objects)
		if err != nil {
			return err
		}
		return output.print(cmd.OutOrStdout(), result, func(w io.Writer) error { return printPolicyDiff(w, result, objects) })
	}
	return cmd
}

func diffPolicies(cmd *cobra.Command, c client.Client, folder *workbench.Folder, objects bool) (*policyDiff, error) {
	live, inCluster, err := readClusterFolder(cmd.Context(), c)
	if err != nil {
		return nil, err
	}
	result := &policyDiff{Objects: []workbench.Effect{}}
	if result.Policies, err = folder.CompareSets(inCluster); err != nil || !objects {
		return result, err
	}
	comparison, err := folder.NewSetComparison(inCluster)
	if err != nil {
		return nil, err
	}
	d := &objectDiff{client: c, live: live, comparison: comparison, result: result}
	for i := range live.Projects {
		fmt.Fprintf(cmd.ErrOrStderr(), "Evaluating project %d of %d: %d objects so far\n", i+1, len(live.Projects), result.Evaluated)
		if err := d.addProject(cmd.Context(), &live.Projects[i]); err != nil {
			return nil, fmt.Errorf("project %s: %w", live.Projects[i].Name, err)
		}
	}
	return result, nil
}

// objectDiff compares the decisions on the objects of a cluster.
type objectDiff struct {
	client     client.Client
	live       *workbench.Folder
	comparison *workbench.SetComparison
	result     *policyDiff
}

// addProject evaluates the pods of a project, and its workloads that no other workload controls.
func (d *objectDiff) addProject(ctx context.Context, project *v1alpha1.Project) error {
	now := policytime.MachineNow()
	request := workbench.Request{User: "sluice-policy-diff", Now: now}
	var err error
	if request.Tenant, request.Namespace, err = d.live.Tenant(project.Name, now); err != nil {
		return err
	}
	kinds := audit.Kinds(d.live.AddedTemplates())
	pods := len(kinds) - 1
	listing := audit.Listing{
		Reader: d.client, Mapper: d.client.RESTMapper(), Namespace: request.Namespace, Kinds: slices.Concat(kinds[pods:], kinds[:pods]),
	}
	missing, err := listing.Each(ctx, func(ctx context.Context, object *unstructured.Unstructured) error {
		if _, controlled := workloadkind.ControllerOf(object.Object); controlled && object.GetKind() != "Pod" {
			return nil // its controller's template is evaluated
		}
		request.Object = newObject(object)
		effect, err := d.comparison.Compare(ctx, request)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.result.add(effect, err)
		return nil
	})
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("you may not list %s", strings.Join(missing, ", "))
	}
	return err
}

// add counts an object that was evaluated, or why it was not.
func (r *policyDiff) add(effect *workbench.Effect, err error) {
	if err != nil {
		if r.Skipped++; r.SkippedBecause == "" {
			r.SkippedBecause = err.Error()
		}
		return
	}
	r.Evaluated++
	if effect == nil {
		return
	}
	r.Affected++
	if len(r.Objects) < maxEffects {
		r.Objects = append(r.Objects, *effect)
	}
}

// newObject returns an object as it would be created: without its status and what the API server added.
func newObject(object *unstructured.Unstructured) map[string]any {
	delete(object.Object, "status")
	object.SetManagedFields(nil)
	object.SetUID("")
	object.SetResourceVersion("")
	object.SetGeneration(0)
	unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
	return object.Object
}

func printPolicyDiff(output io.Writer, result *policyDiff, objects bool) error {
	table := printer.Table{Columns: printer.Columns("Policy", "Change")}
	for _, change := range result.Policies {
		table.Rows = append(table.Rows, []string{change.Policy, string(change.Change)})
	}
	if err := table.Write(output, false); err != nil {
		return err
	}
	for _, change := range result.Policies {
		printLines(output, change.Diff)
	}
	if !objects {
		return nil
	}
	for i := range result.Objects {
		e := &result.Objects[i]
		fmt.Fprintf(output, "\n%s\n", printer.Sanitize(fmt.Sprintf("%s %s/%s (project %s)", e.Kind, e.Namespace, e.Name, e.Project)))
		for _, list := range []struct {
			title string
			texts []string
		}{{"would be refused: ", e.Denied}, {"would be warned: ", e.Warned}, {"would not be refused any more: ", e.Allowed}} {
			for _, text := range list.texts {
				fmt.Fprintln(output, "  "+list.title+printer.Sanitize(text))
			}
		}
		printLines(output, e.Diff)
	}
	fmt.Fprintf(output, "\n%d objects evaluated, %d would be treated differently", result.Evaluated, result.Affected)
	if result.Affected > len(result.Objects) {
		fmt.Fprintf(output, " (the first %d are shown)", len(result.Objects))
	}
	if result.Skipped > 0 {
		fmt.Fprintf(output, ", %d could not be evaluated, the first: %s", result.Skipped, printer.Sanitize(result.SkippedBecause))
	}
	fmt.Fprintln(output)
	return nil
}

// printLines prints the lines of a difference. Rego is indented with tabs.
func printLines(output io.Writer, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintln(output, printer.Sanitize(strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    ")))
	}
}
