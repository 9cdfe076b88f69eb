// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/policytime"
	"sluice.dev/api/workloadkind"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/workloads"
)

func newGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get NAME",
		Aliases: []string{"describe"},
		Short:   "Show a workload: its state, pods, addresses and time limit",
		Long: `Show a workload: its state and why it waits, its GPUs, its pods and their nodes, its
addresses, and when Sluice stops it. NAME is the workload, or KIND/NAME if several have the
name.`,
		Example: `  # Show a workload
  sluice get training

  # Show a Deployment of a project as JSON
  sluice describe deployment/notebook -p thesis-mueller -o json`,
		Args: cobra.ExactArgs(1),
	}
	flags := addWorkloadFlags(cmd, namespaceScope)
	output := addTextOutputFlag(cmd)
	cmd.ValidArgsFunction = flags.completeWorkload
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, w, err := flags.findWorkload(cmd, args[0])
		if err != nil {
			return err
		}
		if c.projects == nil {
			if c.projects, err = listNamespaceProjects(cmd.Context(), c, c.namespace); err != nil {
				return err
			}
		}
		details := newWorkloadDetails(w, c.projects, c.clock.Now(), policytime.MachineNow())
		return output.print(cmd.OutOrStdout(), details, func(out io.Writer) error { return details.write(out, time.Local) })
	}
	return cmd
}

// findWorkload connects and returns the workload that the user named.
func (f *workloadFlags) findWorkload(cmd *cobra.Command, name string) (*workloadClient, *workloads.Workload, error) {
	c, err := f.connectWorkloads(cmd)
	if err != nil {
		return nil, nil, err
	}
	w, err := c.reader.Find(cmd.Context(), c.namespace, name)
	return c, w, err
}

// workloadDetails is the output of get.
type workloadDetails struct {
	workloadRow
	// LimitSeconds and RanSeconds are of the clock; nil for a workload without one.
	LimitSeconds *int64 `json:"limitSeconds,omitempty"`
	RanSeconds   *int64 `json:"ranSeconds,omitempty"`
	// StartCommand starts a stopped workload again.
	StartCommand string      `json:"startCommand,omitempty"`
	PodList      []podDetail `json:"podList"`
}

// podDetail is a pod in the output of get.
type podDetail struct {
	Name     string `json:"name"`
	Status   string `json:"status"`
	Reason   string `json:"reason,omitempty"`
	Node     string `json:"node,omitempty"`
	Restarts int32  `json:"restarts"`
}

func newWorkloadDetails(w *workloads.Workload, projects map[string]string, now, machineNow time.Time) *workloadDetails {
	details := &workloadDetails{workloadRow: newWorkloadRow(w, projects, now, machineNow), PodList: []podDetail{}}
	if w.Clock != nil {
		clock := newClockRow(w.Clock, now)
		details.LimitSeconds, details.RanSeconds = clock.LimitSeconds, &clock.RanSeconds
	}
	if details.Status == workloads.StatusStopped {
		details.StartCommand = workloadkind.StartCommandOf(w.Object)
	}
	for _, pod := range w.Pods {
		status, reason := workloads.DescribePod(pod)
		details.PodList = append(details.PodList, podDetail{
			Name: pod.Name, Status: status, Reason: reason, Node: pod.Spec.NodeName, Restarts: restarts(pod),
		})
	}
	return details
}

func restarts(pod *corev1.Pod) int32 {
	var sum int32
	for i := range pod.Status.ContainerStatuses {
		sum += pod.Status.ContainerStatuses[i].RestartCount
	}
	return sum
}

// write prints the details as text.
func (d *workloadDetails) write(output io.Writer, zone *time.Location) error {
	var text bytes.Buffer
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(columns, "%s:\t%s\n", name, printer.Sanitize(value))
		}
	}
	field("Name", d.Name)
	field("Kind", d.Kind)
	field("Namespace", d.Namespace)
	field("Project", d.Project)
	field("Type", string(d.Type))
	field("Created by", d.CreatedBy)
	field("Created", printer.FormatMinute(d.CreatedAt, zone)+" ("+formatSeconds(&d.AgeSeconds)+" ago)")
	field("Status", d.Status)
	field("Why", d.Reason)
	field("GPUs", d.GPUs)
	field("Images", strings.Join(d.Images, ", "))
	field("Addresses", strings.Join(d.Addresses, ", "))
	field("Time limit", formatSeconds(d.LimitSeconds))
	field("Ran", formatSeconds(d.RanSeconds))
	if d.LeftSeconds != nil {
		left := formatSeconds(d.LeftSeconds)
		if d.EndsAt != nil {
			left += ", until " + formatOptionalMinute(d.EndsAt, zone)
		}
		field("Time left", left)
	}
	if d.StartCommand != "" {
		field("Start again", "sluice start "+strings.ToLower(d.Kind)+"/"+d.Name+" -n "+d.Namespace)
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	if len(d.PodList) > 0 {
		text.WriteString("\nPods:\n")
		table := printer.Table{Columns: printer.Columns("NAME", "STATUS", "NODE", "RESTARTS", "WHY")}
		for _, pod := range d.PodList {
			table.Rows = append(table.Rows, []string{pod.Name, pod.Status, pod.Node, strconv.Itoa(int(pod.Restarts)), pod.Reason})
		}
		if err := table.Write(&text, false); err != nil {
			return err
		}
	}
	_, err := output.Write(text.Bytes())
	return err
}
