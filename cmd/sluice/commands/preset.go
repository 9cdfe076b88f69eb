// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
	"sluice.dev/cmd/sluice/submission"
)

const presetHelp = `List, show and create presets: environments, data sources, compute resources and templates of
these, as in Run:ai. sluice submit --preset NAME uses them. Those in the namespace
sluice-system are for all projects.`

// presetTypes are the values of --type.
var presetTypes = []string{
	string(v1alpha1.PresetEnvironment), string(v1alpha1.PresetDataSource), string(v1alpha1.PresetCompute), string(v1alpha1.PresetTemplate),
}

// presetRow is a preset in a list. Sets has the flags of submit that it stands for, without those of the presets that
// a Template names.
type presetRow struct {
	Name        string              `json:"name"`
	Type        v1alpha1.PresetType `json:"type"`
	Namespace   string              `json:"namespace"`
	Description string              `json:"description,omitempty"`
	Sets        []string            `json:"sets"`
}

func newPresetListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the presets of a project and those of all projects",
		Long: `List the presets of a namespace or a project, and those of sluice-system, which are for all
projects. Of two with one name, the project's is listed, which sluice submit uses.`,
		Example: `  # List the presets that sluice submit finds
  sluice preset list -p thesis-mueller

  # List environments, with what they set
  sluice preset list --type environment -o wide`,
		Args: cobra.NoArgs,
	}
	flags := addWorkloadFlags(cmd, namespaceScope)
	output := addListOutputFlag(cmd)
	presetType := ""
	addChoiceFlag(cmd, &presetType, "type", "", "List presets of this type", presetTypes)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		presets, err := flags.readPresets(cmd)
		if err != nil {
			return err
		}
		rows := []presetRow{}
		for _, name := range presets.Names() {
			if p := presets.Find(name); presetType == "" || string(p.Spec.Type) == presetType {
				rows = append(rows, newPresetRow(p))
			}
		}
		return output.printList(cmd, map[string][]presetRow{"presets": rows}, presetTable(rows), "presets"+inNamespace(presets.Namespace))
	}
	return cmd
}

func newPresetRow(p *v1alpha1.Preset) presetRow {
	row := presetRow{Name: p.Name, Type: p.Spec.Type, Namespace: p.Namespace, Description: p.Spec.Description, Sets: []string{}}
	for _, name := range p.Spec.Presets {
		row.Sets = append(row.Sets, "--preset "+string(name))
	}
	for _, s := range submission.OwnSettings(p) {
		row.Sets = append(row.Sets, s.String())
	}
	return row
}

func presetTable(rows []presetRow) printer.Table {
	table := printer.Table{Columns: append(printer.Columns("NAME", "TYPE", "NAMESPACE", "DESCRIPTION"), printer.Column{Name: "SETS", Wide: true})}
	for i := range rows {
		r := &rows[i]
		table.Rows = append(table.Rows, []string{r.Name, string(r.Type), r.Namespace, r.Description, strings.Join(r.Sets, " ")})
	}
	return table
}

func newPresetShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a preset, and what it sets",
		Long: `Show a preset, and the flags of sluice submit for which it stands. For a template these include
the fields of the presets that it names.`,
		Example: `  # Show what a template sets, and from which preset
  sluice preset show notebook -p thesis-mueller

  # Print a preset to change and to apply it with kubectl
  sluice preset show notebook -o yaml`,
		Args: cobra.ExactArgs(1),
	}
	flags := addWorkloadFlags(cmd, namespaceScope)
	output := addTextOutputFlag(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return flags.completePresets(cmd, args, prefix)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		presets, err := flags.readPresets(cmd)
		if err != nil {
			return err
		}
		settings, err := presets.Settings(args)
		preset := presets.Find(args[0])
		if preset == nil {
			return errors.New(strings.TrimPrefix(err.Error(), "--preset "))
		}
		preset.APIVersion, preset.Kind, preset.ManagedFields = v1alpha1.GroupVersion.String(), "Preset", nil
		printed := output.print(cmd.OutOrStdout(), preset, func(out io.Writer) error { return writePreset(out, preset, settings) })
		if output.isObject() {
			return printed
		}
		return errors.Join(printed, err) // a Template whose presets are gone or contradict each other
	}
	return cmd
}

// writePreset writes a preset and its settings as text.
func writePreset(out io.Writer, p *v1alpha1.Preset, settings []submission.Setting) error {
	var text strings.Builder
	where := p.Namespace
	if where == v1alpha1.SystemNamespace {
		where += " (for all projects)"
	}
	for _, line := range [][2]string{{"Name", p.Name}, {"Type", string(p.Spec.Type)}, {"Namespace", where}, {"Description", p.Spec.Description}} {
		if line[1] != "" {
			fmt.Fprintf(&text, "%-13s%s\n", line[0]+":", printer.Sanitize(line[1]))
		}
	}
	fmt.Fprintf(&text, "\nsluice submit --preset %s sets:\n", p.Name)
	for _, s := range settings {
		text.WriteString("  " + printer.Sanitize(s.String()))
		if s.Preset.Name != p.Name {
			text.WriteString("   (" + s.Preset.Name + ")")
		}
		text.WriteString("\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// readPresets returns the presets of the selected namespace or project, and those of all projects.
func (f *workloadFlags) readPresets(cmd *cobra.Command) (*submission.Presets, error) {
	c, err := f.connectForSubmission(cmd, dryRunNone, true)
	if err != nil {
		return nil, err
	}
	return listPresets(cmd.Context(), c, c.namespace)
}

// listPresets lists the presets of a namespace and those of all projects.
func listPresets(ctx context.Context, c client.Reader, namespace string) (*submission.Presets, error) {
	presets := &submission.Presets{Namespace: namespace}
	for _, from := range slices.Compact([]string{namespace, v1alpha1.SystemNamespace}) {
		err := listPages(ctx, c, func(page *v1alpha1.PresetList) { presets.All = append(presets.All, page.Items...) }, client.InNamespace(from))
		if meta.IsNoMatchError(err) {
			return nil, errors.New("the cluster has no kind Preset: its Sluice is older than this command")
		}
		if err != nil {
			return nil, fmt.Errorf("list presets of namespace %s: %w", from, explainForbidden(err, "`sluice whoami` shows your projects"))
		}
	}
	return presets, nil
}
