// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/workbench"
)

// evalFlags are the flags of sluice policy eval.
type evalFlags struct {
	file, project, directory, user, now string
	groups                              []string
	explain                             bool
}

func newPolicyEvalCommand() *cobra.Command {
	var flags evalFlags
	cmd := &cobra.Command{
		Use:   "eval -f FILE",
		Short: "Show what the policies make of an object",
		Long: `Show what the policies make of a new pod, Job or other workload: why they refuse it, the warnings, what they
change, and which policy did what.

With --policies DIRECTORY the policies and projects are those of the directory, beside the built-in
policies, and the command needs no cluster; a policy in DryRun counts as Deny. Else they are those of the
cluster, and policies in DryRun are not evaluated. Nothing is created.`,
		Example: `  # What would the cluster make of this pod?
  sluice policy eval -f pod.yaml --project course-ml

  # With the policies of a directory, and the expressions that were undefined
  sluice policy eval -f pod.yaml --policies policies/ --explain`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, clusterScope)
	cmd.Flags().StringVarP(&flags.file, "filename", "f", "", "File with the object; - is the standard input")
	cmd.Flags().StringVarP(&flags.project, "project", "p", "", "Project that the object is for; by default an example project, with --policies only")
	cmd.Flags().StringVar(&flags.directory, "policies", "", "Directory with policies, instead of those of the cluster")
	cmd.Flags().StringVar(&flags.user, "as-user", "anna", "User who creates the object")
	cmd.Flags().StringSliceVar(&flags.groups, "as-groups", nil, "Groups of the user")
	cmd.Flags().StringVar(&flags.now, "now", "", "Time of the request, such as 2026-01-05T12:00:00+01:00; by default now")
	cmd.Flags().BoolVar(&flags.explain, "explain", false, "Show for each rule that did not fire which expression was undefined")
	_ = cmd.MarkFlagRequired("filename")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		folder, own, err := evalFolder(cmd, cluster, &flags)
		if err != nil {
			return err
		}
		request, err := evalRequest(cmd.InOrStdin(), folder, &flags)
		if err != nil {
			return err
		}
		policies, err := workbench.NewCluster(folder.Sources(own))
		if err != nil && (policies == nil || flags.directory != "") {
			return err
		}
		if err != nil {
			printOmittedPolicies(cmd.ErrOrStderr(), err)
		}
		data, err := folder.Data()
		if err != nil {
			return err
		}
		policies.UseData(data)
		decision, err := policies.Decide(cmd.Context(), request)
		if err != nil {
			return err
		}
		return printDecision(cmd, policies, decision, flags.explain)
	}
	return cmd
}

// printOmittedPolicies warns of policies that do not compile.
func printOmittedPolicies(output io.Writer, err error) {
	fmt.Fprintln(output, printer.Sanitize("Warning: omitted policies, of which the cluster evaluates the last good version: "+err.Error()))
}

// evalFolder returns the folder of --policies, or the projects, departments and node pools of the cluster with its policies.
func evalFolder(cmd *cobra.Command, cluster *clusterFlags, flags *evalFlags) (*workbench.Folder, []v1alpha1.Policy, error) {
	if flags.directory != "" {
		folder, err := loadFolder(flags.directory)
		if errors.Is(err, workbench.ErrNoPolicies) && len(folder.Projects) > 0 {
			err = nil // the built-in policies decide
		}
		return folder, nil, err
	}
	if flags.project == "" {
		return nil, nil, errors.New("--project is required without --policies")
	}
	c, err := cluster.connect(cmd)
	if err != nil {
		return nil, nil, err
	}
	folder, policies, err := readClusterFolder(cmd.Context(), c)
	if err != nil {
		return nil, nil, err
	}
	return folder, policies, addNamespace(cmd, c, folder, flags.project)
}

// readClusterFolder returns the projects, departments, node pools and data of a cluster, and its policies.
func readClusterFolder(ctx context.Context, c client.Client) (*workbench.Folder, []v1alpha1.Policy, error) {
	observed, err := listPolicyObjects(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	folder := workbench.FromCluster(observed.projects.Items, observed.departments.Items, observed.pools.Items, observed.parameters)
	return folder, observed.policies.Items, addClusterData(ctx, c, folder)
}

// addNamespace adds the namespace of a project, unless the user may not read it.
func addNamespace(cmd *cobra.Command, c client.Client, folder *workbench.Folder, project string) error {
	at := slices.IndexFunc(folder.Projects, func(p v1alpha1.Project) bool { return p.Name == project })
	if at < 0 {
		return nil // reported with the names of the others
	}
	var namespace corev1.Namespace
	switch err := c.Get(cmd.Context(), client.ObjectKey{Name: folder.Projects[at].NamespaceName()}, &namespace); {
	case apierrors.IsForbidden(err):
		fmt.Fprintln(cmd.ErrOrStderr(), printer.Sanitize("Warning: input.namespace has neither labels nor annotations: "+err.Error()))
	case client.IgnoreNotFound(err) != nil:
		return err
	case err == nil:
		folder.Namespaces = append(folder.Namespaces, namespace)
	}
	return nil
}

// addClusterData adds the ConfigMaps and objects of the cluster that policies read.
func addClusterData(ctx context.Context, c client.Client, folder *workbench.Folder) error {
	var configMaps corev1.ConfigMapList
	labeled := client.MatchingLabels{v1alpha1.PolicyDataLabel: "true"}
	if err := c.List(ctx, &configMaps, client.InNamespace(v1alpha1.SystemNamespace), labeled); err != nil {
		return fmt.Errorf("list the ConfigMaps that policies read: %w", err)
	}
	var objects []unstructured.Unstructured
	for _, kind := range folder.DataKinds() {
		list := unstructured.UnstructuredList{}
		list.SetAPIVersion(kind.APIVersion)
		list.SetKind(kind.Kind + "List")
		if err := c.List(ctx, &list); err != nil {
			return fmt.Errorf("list the objects of kind %s that policies read: %w", kind.Kind, err)
		}
		objects = append(objects, list.Items...)
	}
	folder.AddData(configMaps.Items, objects)
	return nil
}

// policyObjects are the objects of a cluster from which the policies and their input are made.
type policyObjects struct {
	policies    v1alpha1.PolicyList
	projects    v1alpha1.ProjectList
	departments v1alpha1.DepartmentList
	pools       v1alpha1.NodePoolList
	parameters  v1alpha1.AdmissionParameters
}

func listPolicyObjects(ctx context.Context, c client.Reader) (*policyObjects, error) {
	var o policyObjects
	for _, list := range []client.ObjectList{&o.policies, &o.projects, &o.departments, &o.pools} {
		if err := c.List(ctx, list); err != nil {
			return nil, err
		}
	}
	err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.AdmissionParametersName}, &o.parameters)
	return &o, client.IgnoreNotFound(err)
}

// evalRequest reads the object, and completes the request.
func evalRequest(stdin io.Reader, folder *workbench.Folder, flags *evalFlags) (workbench.Request, error) {
	request := workbench.Request{User: flags.user, Groups: flags.groups, Now: policytime.MachineNow()}
	text, err := readFileOrInput(stdin, flags.file)
	if err != nil {
		return request, err
	}
	if request.Object, err = workbench.ReadObject(text); err != nil {
		return request, fmt.Errorf("%s: %w", sourceName(flags.file), err)
	}
	if flags.now != "" {
		if request.Now, err = time.Parse(time.RFC3339, flags.now); err != nil {
			return request, fmt.Errorf("--now: %q is not a time such as 2026-01-05T12:00:00+01:00", flags.now)
		}
	}
	request.Tenant, request.Namespace, err = folder.Tenant(flags.project, request.Now)
	return request, err
}

// maxObjectFile is the largest file that is read: the API server accepts no object of half its size.
const maxObjectFile = 4 << 20

// sourceName returns the name of a file for messages.
func sourceName(file string) string {
	if file == "-" {
		return "the standard input"
	}
	return file
}

// readFileOrInput reads a file; - is the standard input.
func readFileOrInput(stdin io.Reader, name string) ([]byte, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // it was only read
		stdin = file
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxObjectFile+1))
	if err == nil && len(text) > maxObjectFile {
		err = fmt.Errorf("%s has more than %d bytes, the most that is read of an object", sourceName(name), maxObjectFile)
	}
	return text, err
}

// printDecision prints a decision. The error says that the object is denied.
func printDecision(cmd *cobra.Command, policies *workbench.Cluster, decision *workbench.Decision, explain bool) error {
	output := cmd.OutOrStdout()
	for _, denial := range decision.Denials() {
		fmt.Fprintln(output, "Denied:  "+printer.Sanitize(denial))
	}
	for _, warning := range decision.Warnings() {
		fmt.Fprintln(output, "Warning: "+printer.Sanitize(warning))
	}
	if decision.AtThePod != "" {
		fmt.Fprintln(output, "Note:    evaluated only when the pods are created: "+decision.AtThePod)
	}
	if len(decision.Denials()) == 0 {
		name := "as admitted"
		if decision.Original["kind"] != "Pod" {
			name = "as its pods are admitted"
		}
		diff, err := workbench.Diff(decision.Original, decision.Effective, name)
		if err != nil {
			return err
		}
		fmt.Fprint(output, diff)
	}
	table := decisionTable(cmd, policies, decision, explain)
	fmt.Fprintln(output)
	if err := table.Write(output, true); err != nil {
		return err
	}
	if len(decision.Denials()) > 0 {
		return errors.New("the policies deny the object")
	}
	return nil
}

// decisionTable has a row for each rule of each policy that fired; with explain also for those that did not.
func decisionTable(cmd *cobra.Command, policies *workbench.Cluster, decision *workbench.Decision, explain bool) printer.Table {
	table := printer.Table{Columns: printer.Columns("Policy", "Result", "Rule", "Line", "Changed, or undefined")}
	for i := range decision.Results {
		result := &decision.Results[i]
		for _, evaluation := range result.Evaluations {
			rules, err := policies.Explain(cmd.Context(), result, evaluation.Policy)
			if err != nil {
				table.Rows = append(table.Rows, []string{evaluation.Policy, string(evaluation.Result), "", "", err.Error()})
			}
			for _, rule := range rules {
				if rule.Fired || explain {
					table.Rows = append(table.Rows, decisionRow(evaluation, rule, result.Merged.ChangedPaths[evaluation.Policy]))
				}
			}
		}
	}
	return table
}

func decisionRow(evaluation engine.Evaluation, rule engine.RuleTrace, changed []string) []string {
	row := []string{evaluation.Policy, string(evaluation.Result), rule.Rule, strconv.Itoa(rule.Line), ""}
	switch {
	case !rule.Fired && rule.UndefinedLine > 0:
		row[1], row[4] = "not fired", fmt.Sprintf("line %d: %s", rule.UndefinedLine, rule.Undefined)
	case !rule.Fired:
		row[1] = "not fired"
	case slices.Contains([]string{"defaults", "overrides", "nodes", "append", "remove"}, rule.Rule):
		row[4] = strings.Join(changed, ", ")
	}
	return row
}
