// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/workloads"
)

func newListCommand() *cobra.Command {
	var mine bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List workloads: state, node, image, GPUs, addresses, time left and why they wait",
		Long: `List the workloads of a namespace or of a project. A workload is what you created, such as
a Job, a Deployment or a pod; its pods are not listed. STATUS is that of its pods while these
start, such as ContainerCreating. WHY is the first reason for which it waits, failed or was
stopped; -o wide prints it in full. You only need to read the pods of the namespace.`,
		Example: `  # List the workloads of the namespace of the kubeconfig
  sluice list

  # List the workloads of a project, with all details
  sluice list -p thesis-mueller -o wide

  # List your own
  sluice list --mine

  # List the workloads of all namespaces as JSON
  sluice list -A -o json`,
		Args: cobra.NoArgs,
	}
	flags := addWorkloadFlags(cmd, listScope)
	output := addListOutputFlag(cmd)
	cmd.Flags().BoolVar(&mine, "mine", false, "List the workloads that you created")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.connectWorkloads(cmd)
		if err != nil {
			return err
		}
		list, err := c.reader.List(cmd.Context(), c.namespace)
		if err != nil {
			return explainForbidden(err, "name a namespace with -n, or one of your projects with -p")
		}
		if mine {
			user, err := currentUser(cmd.Context(), c.config)
			if err != nil {
				return err
			}
			list = slices.DeleteFunc(list, func(w *workloads.Workload) bool { return w.User() != user })
		}
		if c.projects == nil {
			if c.projects, err = listNamespaceProjects(cmd.Context(), c, c.namespace); err != nil {
				return err
			}
		}
		now, machineNow := c.clock.Now(), policytime.MachineNow()
		rows := []workloadRow{}
		for _, w := range list {
			rows = append(rows, newWorkloadRow(w, c.projects, now, machineNow))
		}
		table := workloadTable(rows, flags.allNamespaces, output.format == wideFormat, time.Local)
		return output.printList(cmd, map[string]any{"now": now.UTC(), "workloads": rows}, table, "workloads"+inNamespace(c.namespace))
	}
	return cmd
}

// workloadRow is a workload in the output of list and get.
type workloadRow struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// Status is the state of the workload, or of the pod that explains it best.
	Status string `json:"status"`
	// Reason is why it waits, failed or was stopped.
	Reason    string    `json:"reason,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// AgeSeconds is the time since then, in machine time.
	AgeSeconds int64                 `json:"ageSeconds"`
	Pods       int                   `json:"pods"`
	ReadyPods  int                   `json:"readyPods"`
	Nodes      []string              `json:"nodes,omitempty"`
	Images     []string              `json:"images,omitempty"`
	Type       v1alpha1.WorkloadType `json:"type,omitempty"`
	// Project is empty if it is unknown.
	Project   string `json:"project,omitempty"`
	CreatedBy string `json:"createdBy,omitempty"`
	// GPUs is what all pods request, such as 2, 0.5 or 2x3g.40gb.
	GPUs string `json:"gpus,omitempty"`
	// Addresses are those of its Ingresses and Services.
	Addresses []string `json:"addresses,omitempty"`
	// LeftSeconds is the time until Sluice stops it, in policy time; nil without an end.
	LeftSeconds *int64     `json:"leftSeconds,omitempty"`
	EndsAt      *time.Time `json:"endsAt,omitempty"`
}

// newWorkloadRow returns the row of a workload. The end is in policy time, and the age in machine time.
func newWorkloadRow(w *workloads.Workload, projects map[string]string, now, machineNow time.Time) workloadRow {
	created := w.Object.GetCreationTimestamp()
	row := workloadRow{
		Namespace: w.Object.GetNamespace(), Kind: w.Object.GetKind(), Name: w.Object.GetName(),
		CreatedAt: created.UTC(), AgeSeconds: wholeSeconds(machineNow.Sub(created.Time)),
		Nodes: w.Nodes(), Images: w.Images(), Type: w.Type(), Project: cmp.Or(projects[w.Object.GetNamespace()], w.Project()),
		CreatedBy: w.User(), GPUs: w.GPUs(), Addresses: w.Addresses(),
	}
	row.Status, row.Reason = w.Status()
	row.ReadyPods, row.Pods = w.ReadyPods()
	if w.Clock != nil && row.Status != workloads.StatusSucceeded && row.Status != workloads.StatusFailed {
		clock := newClockRow(w.Clock, now)
		row.LeftSeconds = clock.LeftSeconds
		if row.LeftSeconds != nil {
			row.EndsAt = clock.EndsAt
		}
	}
	return row
}

// longestReason is the number of characters of a reason in a table.
const longestReason = 60

// workloadTable returns the table of rows. Wide tables have full images and reasons.
func workloadTable(rows []workloadRow, namespaces, wide bool, zone *time.Location) printer.Table {
	table := printer.Table{Columns: append([]printer.Column{{Name: "NAMESPACE", Hidden: !namespaces}, {Name: "KIND", Wide: true}},
		printer.Columns("NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUS", "ADDRESS", "LEFT")...)}
	table.Columns = append(table.Columns, printer.Column{Name: "PODS", Wide: true}, printer.Column{Name: "ENDS", Wide: true}, printer.Column{Name: "WHY"})
	for i := range rows {
		r := &rows[i]
		images, reason := strings.Join(r.Images, ","), r.Reason
		if !wide {
			images, reason = shortImages(r.Images), shorten(reason, longestReason)
		}
		table.Rows = append(table.Rows, []string{
			r.Namespace, r.Kind, r.Name, r.Status, formatSeconds(ptr.To(r.AgeSeconds)), joinFirst(r.Nodes), images, string(r.Type),
			r.Project, r.CreatedBy, r.GPUs, joinFirst(r.Addresses), formatSeconds(r.LeftSeconds), r.pods(),
			formatOptionalMinute(r.EndsAt, zone), reason,
		})
	}
	return table
}

// pods returns the numbers of ready and of all pods.
func (r *workloadRow) pods() string { return strconv.Itoa(r.ReadyPods) + "/" + strconv.Itoa(r.Pods) }

// shortImages returns images without registry, folder and digest.
func shortImages(images []string) string {
	var short []string
	for _, image := range images {
		image, _, _ = strings.Cut(image, "@")
		short = append(short, image[strings.LastIndex(image, "/")+1:])
	}
	return joinFirst(short)
}

// shorten returns the first characters of a text on one line.
func shorten(text string, most int) string {
	letters := []rune(text)
	if len(letters) <= most {
		return text
	}
	return strings.TrimSpace(string(letters[:most-3])) + "..."
}
