// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// ownUsageDays is the number of days that usage shows, the present one included.
const ownUsageDays = 30

func newUsageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show your GPU-hours of the last 30 days",
		Long: `Show the GPU-hours that your workloads in a namespace requested and used in the last 30
days, by workload. They come from the clocks of the workloads, which are deleted 30 days
after their workload. You only need to read the WorkloadClocks of one namespace.

A workload uses its GPUs while it is active, however much of them it uses. A dash means
that the use was not measured. The efficiency is the used part of what was measured.`,
		Example: `  # Show your GPU-hours in the namespace of the kubeconfig
  sluice usage

  # Show your GPU-hours in a project as JSON
  sluice usage --project thesis-mueller -o json`,
		Args: cobra.NoArgs,
	}
	cluster := addClusterFlags(cmd, listScope)
	output := addOutputFlag(cmd, []string{tableFormat, jsonFormat, yamlFormat})
	project := cmd.Flags().StringP("project", "p", "", "Show the workloads in this project")
	completeFlag(cmd, "project", cluster.completeProjects)
	user := cmd.Flags().String("created-by", "", "Show the workloads of this user (default: you)")
	cmd.MarkFlagsMutuallyExclusive("all-namespaces", "namespace", "project")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cluster.connect(cmd)
		if err != nil {
			return err
		}
		if *user == "" {
			if *user, err = currentUser(cmd.Context(), c.config); err != nil {
				return err
			}
		}
		list, err := listClocks(cmd.Context(), c, c.namespace, *project)
		if err != nil {
			return err
		}
		document := newOwnUsage(list, *user, c.clock.Now())
		return output.print(cmd.OutOrStdout(), document, func(out io.Writer) error { return document.write(out) })
	}
	return cmd
}

// currentUser returns the name by which the API server knows the user.
func currentUser(ctx context.Context, config *rest.Config) (string, error) {
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("get your user name: %w", explainForbidden(err, "name yourself with --created-by"))
	}
	return review.Status.UserInfo.Username, nil
}

// ownUsage is the JSON output of usage.
type ownUsage struct {
	User string `json:"user"`
	// Namespace is empty for all namespaces.
	Namespace string `json:"namespace,omitempty"`
	// Since is the start of the first of the 30 days, and Now the policy time until which running
	// workloads count.
	Since time.Time `json:"since"`
	Now   time.Time `json:"now"`
	// Workloads are never null.
	Workloads []ownUsageRow `json:"workloads"`
	gpuTime
}

// ownUsageRow is the GPU time of one workload.
type ownUsageRow struct {
	Namespace string `json:"namespace"`
	Project   string `json:"project,omitempty"`
	// Kind and Name are the workload's.
	Kind  string                `json:"kind"`
	Name  string                `json:"name"`
	Type  v1alpha1.WorkloadType `json:"type,omitempty"`
	State v1alpha1.ClockState   `json:"state,omitempty"`
	gpuTime
}

// gpuTime is GPU time in thousandths of a GPU times seconds.
type gpuTime struct {
	GPUMilliSeconds int64 `json:"gpuMilliSeconds"`
	// Used and Idle are the parts in which the GPUs were used and were not. Both are nil if nothing was
	// measured.
	Used *int64 `json:"usedGPUMilliSeconds,omitempty"`
	Idle *int64 `json:"idleGPUMilliSeconds,omitempty"`
}

// add adds GPU time. A clock with negative figures counts as without them.
func (t *gpuTime) add(requested, used, idle int64) {
	t.GPUMilliSeconds = addBounded(t.GPUMilliSeconds, requested)
	if max(used, idle) <= 0 {
		return
	}
	if t.Used == nil {
		t.Used, t.Idle = new(int64), new(int64)
	}
	*t.Used, *t.Idle = addBounded(*t.Used, used), addBounded(*t.Idle, idle)
}

// addBounded returns a sum of at most the largest int64.
func addBounded(a, b int64) int64 {
	b = max(b, 0)
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (t *gpuTime) cells() []string {
	if t.Used == nil {
		return []string{formatTenthHours(t.GPUMilliSeconds), "", ""}
	}
	sums := usageSums{GPUMilliSeconds: t.GPUMilliSeconds, Used: *t.Used, Idle: *t.Idle}
	return []string{formatTenthHours(t.GPUMilliSeconds), formatTenthHours(*t.Used), formatEfficiency(sums)}
}

// newOwnUsage returns the GPU time of a user's workloads, the workload with the most first.
func newOwnUsage(list clockList, user string, now time.Time) ownUsage {
	since := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1-ownUsageDays)
	result := ownUsage{User: user, Namespace: list.namespace, Since: since, Now: now.UTC(), Workloads: []ownUsageRow{}}
	for i := range list.clocks {
		clock := &list.clocks[i]
		if s := &clock.Status; s.CreatedBy != user && s.InheritedFrom != user {
			continue
		}
		row := ownUsageRow{
			Namespace: clock.Namespace, Project: list.projects[clock.Namespace], Kind: clock.Spec.Root.Kind, Name: clock.Spec.Root.Name,
			Type: clock.Status.WorkloadType, State: clock.Status.State, gpuTime: gpuTimeSince(&clock.Status, since, now),
		}
		if row.GPUMilliSeconds > 0 {
			result.Workloads = append(result.Workloads, row)
			result.add(row.GPUMilliSeconds, 0, 0)
			if row.Used != nil {
				result.add(0, *row.Used, *row.Idle)
			}
		}
	}
	slices.SortStableFunc(result.Workloads, func(a, b ownUsageRow) int {
		return cmp.Or(cmp.Compare(b.GPUMilliSeconds, a.GPUMilliSeconds), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return result
}

// gpuTimeSince returns the GPU time of a clock since a day, with the time that its pods have held GPUs since
// the clock counted them.
func gpuTimeSince(s *v1alpha1.WorkloadClockStatus, since, now time.Time) (sum gpuTime) {
	if s.GPUUsage == nil {
		return sum
	}
	oldest := since.Format(time.DateOnly)
	for _, d := range s.GPUUsage.Days {
		if d.Date >= oldest {
			sum.add(d.GPUMilliSeconds, d.UsedGPUMilliSeconds, d.IdleGPUMilliSeconds)
		}
	}
	if counted := s.GPUUsage.CountedUntil; counted != nil && s.GPUs != nil {
		from := counted.Time
		if from.Before(since) {
			from = since
		}
		milli, seconds := max(s.GPUs.MilliValue(), 0), wholeSeconds(now.Sub(from))
		if seconds > 0 && milli > math.MaxInt64/seconds {
			milli, seconds = math.MaxInt64, 1
		}
		sum.add(milli*seconds, 0, 0)
	}
	return sum
}

// write prints the table, its sum and what it covers.
func (u *ownUsage) write(output io.Writer) error {
	where := inNamespace(u.Namespace)
	covers := fmt.Sprintf("since %s (UTC): the last %d days. Clocks of workloads are deleted %d days after their workload.\n",
		u.Since.Format(time.DateOnly), ownUsageDays, ownUsageDays)
	if len(u.Workloads) == 0 {
		_, err := fmt.Fprintf(output, "No GPU time of %s%s %s", printer.Sanitize(u.User), printer.Sanitize(where), covers)
		return err
	}
	table := printer.Table{Columns: append([]printer.Column{{Name: "NAMESPACE", Hidden: u.Namespace != ""}},
		printer.Columns("WORKLOAD", "TYPE", "STATE", "GPU HOURS", "USED", "EFFICIENCY")...)}
	for i := range u.Workloads {
		r := &u.Workloads[i]
		table.Rows = append(table.Rows, append([]string{r.Namespace, r.Kind + "/" + r.Name, string(r.Type), string(r.State)}, r.cells()...))
	}
	total := []string{"total", "total", " ", " "} // an empty cell would print as "-"
	if u.Namespace == "" {
		total[1] = " "
	}
	table.Rows = append(table.Rows, append(total, u.cells()...))
	if err := table.Write(output, false); err != nil {
		return err
	}
	_, err := fmt.Fprintf(output, "\nGPU hours of %s%s %s", printer.Sanitize(u.User), printer.Sanitize(where), covers)
	return err
}
