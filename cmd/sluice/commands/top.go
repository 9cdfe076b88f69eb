// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// The resources of top.
const (
	topPods     = "pods"
	topProjects = "projects"
	topDevices  = "devices"
)

func newTopCommand() *cobra.Command {
	view := topView{resource: topPods, zone: time.Local}
	var idle string
	var once bool
	cmd := &cobra.Command{
		Use:   "top [pods|projects|devices]",
		Short: "Show how pods, projects or devices use GPUs",
		Long: `Show the share, the memory and the use of GPUs by pod, project or device. In a terminal the
table is refreshed every two seconds until q or Ctrl-C; elsewhere, with --once and with
another output format it is printed once.

A dash is an unknown figure: no agent reports it, or the GPU cannot measure it. Figures of
more than 90 seconds ago are marked as old.

Users who may list GPUNodes see all nodes. Others see the workloads of one namespace, from
its WorkloadClocks: name it with -n, or a project with --project. These figures are written
at most every five minutes, and hourly while nothing changes.`,
		Example: `  # Show the pods with GPUs
  sluice top

  # Show the pods that have not used their GPUs for an hour, the longest first
  sluice top pods --idle 1h --sort idle

  # Show the devices of a node
  sluice top devices --node dgx-1

  # Show the use by project as JSON
  sluice top projects -o json`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{topPods, topProjects, topDevices},
	}
	cluster := addClusterFlags(cmd, namespaceScope)
	output := addOutputFlag(cmd, []string{tableFormat, wideFormat, jsonFormat, yamlFormat})
	cmd.Flags().StringVarP(&view.filter.project, "project", "p", "", "Show this project only")
	completeFlag(cmd, "project", cluster.completeProjects)
	cmd.Flags().StringVar(&view.filter.node, "node", "", "Show this node only")
	cmd.Flags().StringVar(&idle, "idle", "", "Show only what has been idle for at least this long, such as 30m")
	cmd.Flags().BoolVar(&once, "once", false, "Print the table once, also in a terminal")
	addChoiceFlag(cmd, &view.sort, "sort", "", "Sort by this field, figures from the largest (default: by project, devices by node)", topSortKeys)
	cmd.MarkFlagsMutuallyExclusive("namespace", "project")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			view.resource = args[0]
		}
		if view.sort == "" && view.resource != topDevices {
			view.sort = sortByProject
		}
		if idle != "" {
			length, err := time.ParseDuration(idle)
			if err != nil || length < 0 {
				return fmt.Errorf("--idle %q: want a duration of at least 0, such as 30m or 1h30m", idle)
			}
			view.filter.idle = &length
		}
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("namespace") {
			view.filter.namespace = c.namespace
		}
		view.wide = output.format == wideFormat
		reader := &topReader{client: c, clock: c.clock, namespace: c.namespace, filter: view.filter}
		terminal := terminalOf(cmd.OutOrStdout())
		if terminal == nil || once || output.isObject() {
			return view.printOnce(cmd, reader, output)
		}
		return showLive(cmd.Context(), terminal, cmd.InOrStdin(), func(ctx context.Context) (string, error) { return view.text(ctx, reader) })
	}
	return cmd
}

// topView is what top shows.
type topView struct {
	resource, sort string
	filter         topFilter
	wide           bool
	zone           *time.Location
}

// printOnce prints the table or the object.
func (v *topView) printOnce(cmd *cobra.Command, reader *topReader, output *outputFlag) error {
	observed, err := v.read(cmd.Context(), reader)
	if err != nil {
		return err
	}
	rows, table := v.rows(observed)
	if !output.isObject() && observed.source == sourceClocks {
		fmt.Fprintln(cmd.ErrOrStderr(), printer.Sanitize(observed.sourceNote()))
	}
	document := map[string]any{"now": observed.now.UTC(), "source": observed.source, v.resource: rows}
	return output.printList(cmd, document, table, v.resource+" with GPUs")
}

// text returns the table with a title, for a terminal.
func (v *topView) text(ctx context.Context, reader *topReader) (string, error) {
	observed, err := v.read(ctx, reader)
	if err != nil {
		return "", err
	}
	_, table := v.rows(observed)
	title := fmt.Sprintf("%d %s", len(table.Rows), v.resource)
	if observed.source == sourceClocks {
		title += "   " + observed.sourceNote()
	}
	text := bytes.NewBufferString(printer.Sanitize(title) + "\n\n")
	if len(table.Rows) == 0 {
		fmt.Fprintf(text, "No %s with GPUs found.\n", v.resource)
		return text.String(), nil
	}
	err = table.Write(text, v.wide)
	return text.String(), err
}

func (v *topView) read(ctx context.Context, reader *topReader) (topObservation, error) {
	observed, err := reader.read(ctx)
	switch {
	case err != nil:
		return observed, err
	case observed.source == sourceClocks && v.resource == topDevices:
		return observed, errors.New("devices are for users who may list GPUNodes; `sluice top pods` shows the workloads of your namespace")
	case observed.source == sourceClocks && v.filter.node != "":
		return observed, errors.New("--node is for users who may list GPUNodes; WorkloadClocks have no node")
	}
	return observed, nil
}

// rows returns the rows for programs and the table for people, filtered and sorted.
func (v *topView) rows(observed topObservation) (any, printer.Table) {
	pods := observed.pods()
	switch v.resource {
	case topProjects:
		projects := arrange(newTopProjectRows(arrange(pods, v.filter.withoutIdle(), "")), topFilter{idle: v.filter.idle}, v.sort)
		return projects, topProjectTable(projects, &observed, v.zone)
	case topDevices:
		devices := arrange(newTopDeviceRows(&observed, pods), v.filter, v.sort)
		return devices, topDeviceTable(devices, &observed, v.zone)
	default:
		pods = arrange(pods, v.filter, v.sort)
		return pods, topPodTable(pods, &observed, v.zone)
	}
}

// topReader reads the use of GPUs from the cluster.
type topReader struct {
	client client.Reader
	clock  policytime.Clock
	// namespace is that of the kubeconfig or -n, for users who may not list GPUNodes.
	namespace string
	filter    topFilter

	projects       map[string]string
	projectsReadAt time.Time
}

// projectsMaxAge is how long the projects of namespaces are not read again.
const projectsMaxAge = 30 * time.Second

// read returns the GPUNodes, or the WorkloadClocks of a namespace if the user may not list GPUNodes.
func (r *topReader) read(ctx context.Context) (topObservation, error) {
	observed := topObservation{source: sourceNodes, now: policytime.MachineNow()}
	err := listPages(ctx, r.client, func(page *v1alpha1.GPUNodeList) { observed.nodes = append(observed.nodes, page.Items...) })
	if apierrors.IsForbidden(err) {
		return r.readClocks(ctx)
	}
	if err != nil {
		return observed, fmt.Errorf("list GPUNodes: %w", err)
	}
	if r.projects == nil || observed.now.Sub(r.projectsReadAt) > projectsMaxAge {
		if r.projects, err = listNamespaceProjects(ctx, r.client, ""); err != nil {
			return observed, err
		}
		r.projectsReadAt = observed.now
	}
	observed.projects = r.projects
	return observed, nil
}

func (r *topReader) readClocks(ctx context.Context) (topObservation, error) {
	list, err := listClocks(ctx, r.client, r.namespace, r.filter.project)
	observed := topObservation{source: sourceClocks, now: r.clock.Now(), clocks: list.clocks, projects: list.projects, namespace: list.namespace}
	if err != nil {
		return observed, explainForbidden(err, "name a namespace with -n, or one of your projects with --project")
	}
	return observed, nil
}
