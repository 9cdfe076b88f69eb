// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"fmt"
	"io"
	"time"

	"sluice.dev/cmd/sluice/show"
)

// Table prints rows for a person, times in zone. With namespaces it has a column
// for them.
func Table(output io.Writer, rows []Row, namespaces bool, zone *time.Location) error {
	table := show.Table{
		Headers: []string{"WORKLOAD", "PROJECT", "TYPE", "STATE", "LIMIT", "RAN", "LEFT", "IDLE", "ENDS", "BECAUSE"},
		Right:   []string{"LIMIT", "RAN", "LEFT", "IDLE"},
	}
	if namespaces {
		table.Headers = append([]string{"NAMESPACE"}, table.Headers...)
	}
	for _, r := range rows {
		idle := span(r.IdleSeconds)
		if r.IdleUnknown {
			idle = "unknown"
		}
		ends := ""
		if r.Ends != nil {
			ends = show.Instant(*r.Ends, zone)
		}
		because := string(r.Because)
		if r.DryRun {
			because += " (dry run)"
		}
		cells := []string{
			r.Kind + "/" + r.Name, r.Project, string(r.Type), string(r.State), span(r.LimitSeconds),
			span(&r.RanSeconds), span(r.LeftSeconds), idle, ends, because,
		}
		if namespaces {
			cells = append([]string{r.Namespace}, cells...)
		}
		table.Rows = append(table.Rows, cells)
	}
	return table.Write(output)
}

// Document is the form of the rows for a machine.
type Document struct {
	// Now is the instant of policy time that they are as of.
	Now time.Time `json:"now"`
	// Clocks are the rows; never null.
	Clocks []Row `json:"clocks"`
}

// None is what to say where there is no row.
func None(namespace string) string {
	if namespace == "" {
		return "no workload has a clock"
	}
	return fmt.Sprintf("no workload in namespace %s has a clock: none with a GPU has run there", namespace)
}

func span(length *int64) string {
	if length == nil {
		return ""
	}
	// Beyond what a Duration holds, which no clock reaches, the most is shown.
	const most = int64(1<<63-1) / int64(time.Second)
	return show.Span(time.Duration(min(*length, most)) * time.Second)
}
