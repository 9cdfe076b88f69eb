// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package brake

import (
	"fmt"
	"strings"
	"time"

	"sluice.dev/cmd/sluice/show"
)

// Text is the report for a person, in lines; times in zone.
func (r Report) Text(zone *time.Location) string {
	var text strings.Builder
	switch {
	case r.Engaged:
		fmt.Fprintf(&text, "the brake is engaged since %s: no workload is stopped\n", show.Second(*r.EngagedAt, zone))
		fmt.Fprintf(&text, "%d of %d running workloads were to be stopped within an hour\n", r.Due, r.Running)
		fmt.Fprintln(&text, "if that is meant: sluice brake release --for 2h")
	case r.Released:
		fmt.Fprintf(&text, "the brake is released until %s (%s): workloads are stopped, however many\n",
			show.Second(*r.ReleasedUntil, zone), show.Span(r.ReleasedUntil.Sub(r.Now)))
	default:
		fmt.Fprintln(&text, "the brake is not engaged")
	}
	if !r.Engaged && r.EngagedAt != nil {
		fmt.Fprintf(&text, "it was engaged last at %s, when %d of %d running workloads were to be stopped within an hour\n",
			show.Second(*r.EngagedAt, zone), r.Due, r.Running)
	}
	return text.String()
}
