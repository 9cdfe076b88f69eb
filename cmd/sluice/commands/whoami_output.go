// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// identity is the output of whoami.
type identity struct {
	User   string   `json:"user"`
	Groups []string `json:"groups"`
	// Projects are never null.
	Projects []ownProject `json:"projects"`
	// More is the number of further projects, beyond the most that are shown.
	More int `json:"moreProjects,omitempty"`
	// AllProjects reports that the user may read every project; only those with a role are shown.
	AllProjects bool `json:"allProjects,omitempty"`
	// Incomplete reports that the API server could not list all rights.
	Incomplete bool `json:"incomplete,omitempty"`
}

// ownProject is a project of the user.
type ownProject struct {
	Name       string                `json:"name"`
	Department string                `json:"department"`
	Namespace  string                `json:"namespace"`
	Phase      v1alpha1.ProjectPhase `json:"phase,omitempty"`
	ExpiresAt  *time.Time            `json:"expiresAt,omitempty"`
	// Roles are the user's, each with where it comes from. They are never null.
	Roles []ownRole `json:"roles"`
	// Pools are never null.
	Pools []ownPool `json:"nodePools"`
	// TimeLimits are the effective ones of each type of workload, in seconds; 0 means no limit.
	TimeLimits map[v1alpha1.WorkloadType]v1alpha1.EffectiveTimeLimits `json:"timeLimits,omitempty"`
	// Services are the allowed types of Services and hosts of Ingresses; nil if they are unknown.
	Services *v1alpha1.ServiceTerms `json:"services,omitempty"`
	// Images are what policies tell of the images that they allow, each in an object of its own.
	Images []ownImages `json:"images,omitempty"`
}

// ownImages are images that a policy allows. An image needs to be among those of each list.
type ownImages struct {
	// Name is that of the ProjectParameters, as a rule the policy's.
	Name   string   `json:"name"`
	Images []string `json:"images"`
}

// ownRole is a role of the user in a project.
type ownRole struct {
	Role string `json:"role"`
	// Through is "project", "department", or either with a group: "project, group staff".
	Through string `json:"through"`
}

// ownPool is the quota of a project in a node pool. Amounts of GPUs are quantities: 500m is half a GPU.
type ownPool struct {
	Name       string `json:"name"`
	Guaranteed string `json:"guaranteed"`
	Limit      string `json:"limit"`
	Used       string `json:"used"`
	Pending    string `json:"pending"`
	// Free is what is left of the limit. GPUs beyond the guarantee must be idle in the pool.
	Free string `json:"free"`
	// Sharing is the sharing mode of the pool; empty if the pool may not be read.
	Sharing string `json:"sharing,omitempty"`
	// GPUs is the number of GPUs of the pool, Models its models and Slices its MIG profiles.
	GPUs   int32    `json:"gpus,omitempty"`
	Models []string `json:"models,omitempty"`
	Slices []string `json:"slices,omitempty"`
	// PerGPU and PreemptiblePerGPU are the CPU, memory and so on that a pod with one GPU of the pool may request at
	// most, on any of its nodes: one that cannot be preempted, and one that can. A part of a GPU has that part of
	// it. They are empty if that is not limited, or the pool may not be read.
	PerGPU            corev1.ResourceList `json:"perGPU,omitempty"`
	PreemptiblePerGPU corev1.ResourceList `json:"preemptiblePerGPU,omitempty"`
}

// write prints the identity as text and tables.
func (d *identity) write(output io.Writer, zone *time.Location) error {
	var text strings.Builder
	text.WriteString("User:    " + printer.Sanitize(d.User) + "\n")
	text.WriteString("Groups:  " + printer.Sanitize(strings.Join(d.Groups, ", ")) + "\n")
	if d.AllProjects {
		text.WriteString("You may read all projects; those without a role of yours are not shown. To list all: sluice project list\n")
	}
	if d.Incomplete {
		text.WriteString("The API server could not list all your rights, so projects may be missing.\n")
	}
	if len(d.Projects) == 0 {
		text.WriteString("\nYou are a member of no project. Your department creates projects and adds members.\n")
		_, err := io.WriteString(output, text.String())
		return err
	}
	if _, err := io.WriteString(output, text.String()+"\n"); err != nil {
		return err
	}
	projects := printer.Table{Columns: printer.Columns("PROJECT", "DEPARTMENT", "NAMESPACE", "PHASE", "EXPIRES", "YOUR ROLES")}
	pools := printer.Table{Columns: printer.Columns("PROJECT", "NODE POOL", "GUARANTEED", "LIMIT", "USED", "PENDING", "FREE", "GPUS", "MODELS", "SLICES")}
	for i := range d.Projects {
		p := &d.Projects[i]
		var roles []string
		for _, role := range p.Roles {
			roles = append(roles, role.Role+" ("+role.Through+")")
		}
		projects.Rows = append(projects.Rows, []string{
			p.Name, p.Department, p.Namespace, string(p.Phase), formatOptionalMinute(p.ExpiresAt, zone), strings.Join(roles, ", "),
		})
		for k := range p.Pools {
			pools.Rows = append(pools.Rows, p.Pools[k].cells(p.Name))
		}
	}
	if err := projects.Write(output, false); err != nil {
		return err
	}
	if len(pools.Rows) > 0 {
		if _, err := io.WriteString(output, "\n"); err != nil {
			return err
		}
		if err := pools.Write(output, false); err != nil {
			return err
		}
	}
	_, err := io.WriteString(output, d.notes())
	return err
}

// cells returns the row of a node pool.
func (p *ownPool) cells(project string) []string {
	gpus := ""
	if p.Sharing != "" {
		gpus = fmt.Sprintf("%d (%s)", p.GPUs, p.Sharing)
	}
	return []string{
		project, p.Name, p.Guaranteed, p.Limit, p.Used, p.Pending, p.Free, gpus, strings.Join(p.Models, ", "), strings.Join(p.Slices, ", "),
	}
}

// describeRequests returns what a pod with a GPU of the pool may request at most; empty if it is unknown.
func (p *ownPool) describeRequests() string {
	if p.Sharing == "" {
		return ""
	}
	return fmt.Sprintf("%s per GPU of %s, or %s if it can be preempted",
		describeResources(p.PerGPU), p.Name, describeResources(p.PreemptiblePerGPU))
}

func describeResources(list corev1.ResourceList) string {
	texts := make([]string, 0, len(list))
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		texts = append(texts, string(name)+" "+quantity.String())
	}
	return cmp.Or(strings.Join(texts, ", "), "any amount")
}

// notes returns what the tables do not show.
func (d *identity) notes() string {
	var text strings.Builder
	text.WriteString("\n")
	for i := range d.Projects {
		p := &d.Projects[i]
		if len(p.TimeLimits) > 0 {
			fmt.Fprintf(&text, "Time limits in %s: %s\n", printer.Sanitize(p.Name), p.describeTimeLimits())
		}
		for k := range p.Pools {
			if requests := p.Pools[k].describeRequests(); requests != "" {
				fmt.Fprintf(&text, "A pod in %s can request %s\n", printer.Sanitize(p.Name), printer.Sanitize(requests))
			}
		}
		if p.Services != nil {
			fmt.Fprintf(&text, "Services in %s: %s", printer.Sanitize(p.Name), cmp.Or(joinNames(p.Services.Types), "none"))
			if len(p.Services.IngressHosts) > 0 {
				text.WriteString("; Ingresses for " + printer.Sanitize(joinNames(p.Services.IngressHosts)))
			}
			text.WriteString("\n")
		}
		for k := range p.Images {
			fmt.Fprintf(&text, "Images in %s: %s (%s)\n",
				printer.Sanitize(p.Name), printer.Sanitize(strings.Join(p.Images[k].Images, ", ")), printer.Sanitize(p.Images[k].Name))
		}
	}
	if d.More > 0 {
		fmt.Fprintf(&text, "You have %d more projects. To list all: sluice project list\n", d.More)
	}
	text.WriteString("FREE is what is left of the limit; GPUs beyond the guarantee must be idle in the node pool.\n")
	text.WriteString("Policies decide on images. To see whether one is allowed: sluice submit try -i IMAGE --dry-run=server -p " +
		printer.Sanitize(d.Projects[0].Name) + "\n")
	return text.String()
}

// describeTimeLimits returns the limits of each type of workload.
func (p *ownProject) describeTimeLimits() string {
	var all []string
	for _, kind := range v1alpha1.WorkloadTypes {
		limits, ok := p.TimeLimits[kind]
		if !ok {
			continue
		}
		text := string(kind) + " unlimited"
		if limits.MaxRuntimeSeconds > 0 {
			text = string(kind) + " " + formatSeconds(&limits.MaxRuntimeSeconds)
		}
		if limits.IdleTimeoutSeconds > 0 {
			text += " (idle " + formatSeconds(&limits.IdleTimeoutSeconds) + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func joinNames[T ~string](names []T) string {
	texts := make([]string, 0, len(names))
	for _, name := range names {
		texts = append(texts, string(name))
	}
	return strings.Join(texts, ", ")
}
