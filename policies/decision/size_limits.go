// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/merge"
)

// SizeLimits are the largest numbers of labels and annotations of an object; 0 means the default. The limits of all
// other lists and maps are constants of package v1alpha1.
type SizeLimits struct {
	Labels, Annotations int
}

// managedKeys are the keys that do not count: the object can have them from an earlier call.
var managedKeys = func() map[string]bool {
	keys := make(map[string]bool)
	for _, key := range v1alpha1.ManagedKeys() {
		keys[key] = true
	}
	return keys
}()

// denialsForSize returns a denial for each list and map of an object that has more entries than policies go through,
// and for each text that is longer; without any of these, for an object with too many bytes. Its own cost grows with the object's size.
func denialsForSize(object map[string]any, bytes int, limits SizeLimits) []merge.Finding {
	check := sizeCheck{limits: limits}
	check.walk("", "", object)
	if len(check.denials) == 0 && bytes > v1alpha1.MaxObjectBytes {
		check.denyText("the object", bytes, v1alpha1.MaxObjectBytes)
	}
	slices.SortFunc(check.denials, func(a, b merge.Finding) int { return cmp.Compare(a.Field, b.Field) })
	return check.denials
}

type sizeCheck struct {
	limits  SizeLimits
	denials []merge.Finding
}

// walk checks a value and all values in it. The parent is the name of the field that contains the value.
func (c *sizeCheck) walk(path, parent string, value any) {
	switch value := value.(type) {
	case []any:
		limit := v1alpha1.MaxListEntries
		if parent == "containers" || parent == "initContainers" {
			limit = v1alpha1.MaxContainers
		}
		if c.check(path, len(value), limit) {
			return
		}
		for i, element := range value {
			switch element := element.(type) {
			case []any, map[string]any:
				c.walk(fmt.Sprintf("%s[%d]", path, i), parent, element)
			case string:
				if len(element) > v1alpha1.MaxTextBytes {
					c.denyText(fmt.Sprintf("%s[%d]", path, i), len(element), v1alpha1.MaxTextBytes)
				}
			}
		}
	case map[string]any:
		if c.check(path, len(value), v1alpha1.MaxListEntries) {
			return
		}
		if c.checkKeys(path, value) {
			return
		}
		for name, field := range value {
			switch field := field.(type) {
			case []any:
				c.walk(joinPath(path, name), name, field)
			case map[string]any:
				c.walkMap(joinPath(path, name), parent, name, field)
			case string:
				limit := v1alpha1.MaxTextBytes
				if name == "path" || name == "workingDir" || strings.HasSuffix(name, "Path") {
					limit = v1alpha1.MaxPathBytes
				}
				if len(field) > limit {
					c.denyText(joinPath(path, name), len(field), limit)
				}
			}
		}
	}
}

// walkMap checks the map in a field. Some fields have limits of their own.
func (c *sizeCheck) walkMap(path, parent, name string, value map[string]any) {
	switch {
	case parent == "metadata" && name == "labels":
		if !c.check(path, countKeys(value), cmp.Or(c.limits.Labels, int(v1alpha1.DefaultMaxLabels))) && !c.checkKeys(path, value) {
			c.checkTexts(path, value, v1alpha1.MaxPathBytes)
		}
	case parent == "metadata" && name == "annotations":
		if !c.check(path, countKeys(value), cmp.Or(c.limits.Annotations, int(v1alpha1.DefaultMaxAnnotations))) && !c.checkKeys(path, value) {
			c.checkTotal(path, value)
		}
	case parent == "resources" && (name == "limits" || name == "requests"):
		if !c.check(path, len(value), v1alpha1.MaxContainerResources) && !c.checkKeys(path, value) {
			c.checkTexts(path, value, v1alpha1.MaxPathBytes)
		}
	default:
		c.walk(path, name, value)
	}
}

// check reports whether a number exceeds its limit, and adds the denial.
func (c *sizeCheck) check(path string, number, limit int) bool {
	if number <= limit {
		return false
	}
	c.denials = append(c.denials, merge.Finding{
		Field:   path,
		Message: fmt.Sprintf("%d entries, of which at most %d are allowed", number, limit),
		Fix:     "remove those that are not needed",
	})
	return true
}

// checkKeys reports whether a key is too long, and adds the denial. The path of what lies below would contain the key.
func (c *sizeCheck) checkKeys(path string, value map[string]any) bool {
	longest := 0
	for key := range value {
		longest = max(longest, len(key))
	}
	if longest <= v1alpha1.MaxPathBytes {
		return false
	}
	c.denials = append(c.denials, merge.Finding{
		Field:   path,
		Message: fmt.Sprintf("a key has %d bytes, of which at most %d are allowed", longest, v1alpha1.MaxPathBytes),
	})
	return true
}

// checkTexts adds a denial for each text of a map that is too long.
func (c *sizeCheck) checkTexts(path string, value map[string]any, limit int) {
	for key, field := range value {
		if text, ok := field.(string); ok && len(text) > limit {
			c.denyText(joinPath(path, key), len(text), limit)
		}
	}
}

// maxAnnotationsBytes is the size of all annotations that the API server accepts (TotalAnnotationSizeLimitB).
const maxAnnotationsBytes = 256 << 10

// checkTotal adds a denial for more annotations than the API server accepts. It checks that only after the webhook.
func (c *sizeCheck) checkTotal(path string, value map[string]any) {
	total := 0
	for key, field := range value {
		text, _ := field.(string)
		total += len(key) + len(text)
	}
	if total > maxAnnotationsBytes {
		c.denyText(path, total, maxAnnotationsBytes)
	}
}

// denyText adds the denial of a text that is too long.
func (c *sizeCheck) denyText(path string, length, limit int) {
	c.denials = append(c.denials, merge.Finding{Field: path, Message: fmt.Sprintf("%d bytes, of which at most %d are allowed", length, limit)})
}

// countKeys returns the number of keys that are not Sluice's.
func countKeys(value map[string]any) int {
	number := len(value)
	for key := range managedKeys {
		if _, ok := value[key]; ok {
			number--
		}
	}
	return number
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
