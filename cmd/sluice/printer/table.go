// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// Column is a column of a [Table].
type Column struct {
	Name string
	// Wide columns are printed in the format wide only.
	Wide bool
	// Hidden columns are not printed, such as NAMESPACE in the table of one namespace.
	Hidden bool
}

// Columns returns columns that every table format prints.
func Columns(names ...string) []Column {
	columns := make([]Column, 0, len(names))
	for _, name := range names {
		columns = append(columns, Column{Name: name})
	}
	return columns
}

// Table is printed by Kubernetes' table printer, as kubectl get prints.
type Table struct {
	Columns []Column
	// Rows have a cell for each column. An empty cell prints as "-".
	Rows [][]string
}

// Write prints the table. Every cell is sanitized.
func (t Table) Write(output io.Writer, wide bool) error {
	table := &metav1.Table{Rows: make([]metav1.TableRow, len(t.Rows))}
	for i, column := range t.Columns {
		if column.Hidden {
			continue
		}
		definition := metav1.TableColumnDefinition{Name: column.Name, Type: "string"}
		if column.Wide {
			definition.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
		for r, row := range t.Rows {
			cell := "-"
			if i < len(row) && row[i] != "" {
				cell = Sanitize(row[i])
			}
			table.Rows[r].Cells = append(table.Rows[r].Cells, cell)
		}
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(table, output)
}
