// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice.dev/api/v1alpha1"
)

// The metrics are those of the projects that exist.
func TestMetrics(t *testing.T) {
	c := newCluster(t, newStudents("P6M", v1alpha1.ExpiryExpire), newThesis(spring, "anna"))
	c.downAddresses["anna@example.org"] = true
	c.runUntil(time.Date(2026, 8, 2, 8, 0, 0, 0, c.zone))
	const want = `
# HELP sluice_project_next_step_timestamp_seconds Unix time of the next step of the expiry of a project, in policy time, by the phase that follows.
# TYPE sluice_project_next_step_timestamp_seconds gauge
sluice_project_next_step_timestamp_seconds{department="students",phase="Expired",project="thesis"} 1.7883e+09
# HELP sluice_project_phase 1 for the phase of each project.
# TYPE sluice_project_phase gauge
sluice_project_phase{department="students",phase="Expiring",project="thesis"} 1
# HELP sluice_project_warnings_unsent Projects of a department with a warning that is due and was not sent.
# TYPE sluice_project_warnings_unsent gauge
sluice_project_warnings_unsent{department="students"} 1
`
	next := c.project().Status.Next.At.Unix()
	text := strings.ReplaceAll(want, "1.7883e+09", strconv.FormatFloat(float64(next), 'g', -1, 64))
	if err := testutil.CollectAndCompare(collector{c.client}, strings.NewReader(text)); err != nil {
		t.Error(err)
	}
	update(c, newThesis(spring), func(p *v1alpha1.Project) { p.Spec.Hold = &v1alpha1.Exception{Reason: "an exam"} })
	c.settle()
	const held = `
# HELP sluice_project_exceptions 1 for each exception of a project that is in force, by kind: Held or Exempt.
# TYPE sluice_project_exceptions gauge
sluice_project_exceptions{department="students",kind="Held",project="thesis"} 1
`
	if err := testutil.CollectAndCompare(collector{c.client}, strings.NewReader(held), "sluice_project_exceptions"); err != nil {
		t.Error(err)
	}
}
