// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

// column is one of the fields that name a row.
type column struct {
	title string // of the table
	name  string // of the CSV
	of    func(Row) string
}

var (
	departmentColumn = column{"DEPARTMENT", "department", func(r Row) string { return r.Department }}
	projectColumn    = column{"PROJECT", "project", func(r Row) string { return r.Project }}
	userColumn       = column{"USER", "user", func(r Row) string { return r.User }}
	typeColumn       = column{"TYPE", "type", func(r Row) string { return string(r.Type) }}
	poolColumn       = column{"NODE POOL", "node_pool", func(r Row) string { return r.NodePool }}
)

// columns are those that a report has.
func (by By) columns() []column {
	switch by {
	case ByProject:
		return []column{departmentColumn, projectColumn}
	case ByUser:
		return []column{userColumn}
	case ByType:
		return []column{typeColumn}
	case ByPool:
		return []column{poolColumn}
	default:
		return []column{departmentColumn, projectColumn, userColumn, typeColumn}
	}
}
