// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package data reads what policies see as data.config and data.objects.
//
// [Configs] turns the ConfigMaps of administrators into [engine.ConfigData]: it parses them, limits
// their size, and keeps the last good version of one that has a fault. [Watcher] lists and watches the
// kinds of objects that the AdmissionParameters name, trims each object to the fields that policies
// may see, and limits their number and size. Package policies/store gives both to the engine.
//
// The package never writes to the cluster, and never reads a Secret.
package data

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// The limits of ConfigMaps.
const (
	// MaxConfigMapBytes is the size of one ConfigMap: its keys and values.
	MaxConfigMapBytes = 64 << 10
	// MaxConfigMaps is their number, and MaxConfigBytes their size in all.
	MaxConfigMaps  = 64
	MaxConfigBytes = 1 << 20
)

// IsPolicyData reports whether policies read a ConfigMap.
func IsPolicyData(object *corev1.ConfigMap) bool {
	return object.Namespace == v1alpha1.SystemNamespace && object.Labels[v1alpha1.PolicyDataLabel] == "true"
}

// ParseConfigMap returns the values of a ConfigMap as policies read them. A key that ends in .json, .yaml or
// .yml is parsed, and named without that; other values are strings.
func ParseConfigMap(object *corev1.ConfigMap) (map[string]any, error) {
	if len(object.BinaryData) > 0 {
		return nil, errors.New("binaryData: policies read data only")
	}
	if size := configMapBytes(object); size > MaxConfigMapBytes {
		return nil, fmt.Errorf("it has %d bytes, of which at most %d are allowed", size, MaxConfigMapBytes)
	}
	values, named := make(map[string]any, len(object.Data)), make(map[string]string, len(object.Data))
	keys := make([]string, 0, len(object.Data))
	for key := range object.Data {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		name, value, err := parseKey(key, object.Data[key])
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", key, err)
		}
		if other, ok := named[name]; ok {
			return nil, fmt.Errorf("the keys %s and %s have the same name for policies, %q", other, key, name)
		}
		values[name], named[name] = value, key
	}
	return values, nil
}

func configMapBytes(object *corev1.ConfigMap) int {
	size := 0
	for key, value := range object.Data {
		size += len(key) + len(value)
	}
	return size
}

// parseKey returns the name and the value of a key.
func parseKey(key, text string) (name string, value any, err error) {
	if !utf8.ValidString(text) {
		return "", nil, errors.New("it is not valid UTF-8")
	}
	raw := []byte(text)
	switch extension := path.Ext(key); {
	case extension == ".json" && key != extension:
		name = strings.TrimSuffix(key, extension)
	case (extension == ".yaml" || extension == ".yml") && key != extension:
		name = strings.TrimSuffix(key, extension)
		if raw, err = yamlToJSON(text); err != nil {
			return "", nil, err
		}
	default:
		return key, text, nil
	}
	decoded, err := document.Decode(raw)
	if err != nil {
		return "", nil, err
	}
	return name, decoded.Value(), nil
}

// Fault is a ConfigMap whose present version policies do not read.
type Fault struct {
	// Name and UID identify the ConfigMap.
	Name string
	UID  types.UID
	// Message says why, and what policies read instead.
	Message string
}

// Configs keeps the last good version of each ConfigMap. The zero value is ready to use. It is not safe for
// concurrent use.
type Configs struct {
	good map[configID]goodConfig
}

// configID identifies a ConfigMap. One that was deleted and created again has another UID; one in a file has none.
type configID struct {
	uid  types.UID
	name string
}

func idOf(object *corev1.ConfigMap) configID { return configID{object.UID, object.Name} }

type goodConfig struct {
	data    engine.ConfigData
	version string
	bytes   int
}

// Update returns the data of the ConfigMaps, and the faults of those whose present version is not used. One that
// has a fault, or exceeds a limit, is read in its last good version; without one it cannot be read.
func (c *Configs) Update(objects []corev1.ConfigMap) ([]engine.ConfigData, []Fault) {
	// The oldest first: a new ConfigMap must not take the room of one that policies already read.
	ordered := make([]*corev1.ConfigMap, 0, len(objects))
	for i := range objects {
		if IsPolicyData(&objects[i]) {
			ordered = append(ordered, &objects[i])
		}
	}
	slices.SortFunc(ordered, func(a, b *corev1.ConfigMap) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	good := make(map[configID]goodConfig, len(ordered))
	all := make([]engine.ConfigData, 0, len(ordered))
	var faults []Fault
	used, total := 0, 0
	for _, object := range ordered {
		last, known := c.good[idOf(object)]
		next, err := c.parse(object)
		if err == nil {
			err = checkRoom(used, total+next.bytes)
		}
		if err != nil {
			fault := Fault{Name: object.Name, UID: object.UID, Message: err.Error() + "; policies that name it fail"}
			if known && checkRoom(used, total+last.bytes) == nil {
				fault.Message = err.Error() + "; policies read its last good version"
			} else {
				known = false
			}
			faults = append(faults, fault)
			if !known {
				all = append(all, engine.ConfigData{Name: object.Name, Unavailable: err.Error()})
				continue
			}
			next = last
		}
		used, total = used+1, total+next.bytes
		good[idOf(object)] = next
		all = append(all, next.data)
	}
	c.good = good
	return all, faults
}

// parse returns the data of a ConfigMap, from the last time if the ConfigMap is the same.
func (c *Configs) parse(object *corev1.ConfigMap) (goodConfig, error) {
	if last, ok := c.good[idOf(object)]; ok && last.version == object.ResourceVersion && object.ResourceVersion != "" {
		return last, nil
	}
	values, err := ParseConfigMap(object)
	if err != nil {
		return goodConfig{}, err
	}
	parsed, err := engine.NewConfigData(object.Name, values)
	return goodConfig{data: parsed, version: object.ResourceVersion, bytes: configMapBytes(object)}, err
}

// checkRoom returns an error if another ConfigMap exceeds a limit.
func checkRoom(used, total int) error {
	switch {
	case used >= MaxConfigMaps:
		return fmt.Errorf("at most %d ConfigMaps are allowed, and older ones fill this number", MaxConfigMaps)
	case total > MaxConfigBytes:
		return fmt.Errorf("with the older ConfigMaps it exceeds %d bytes in all", MaxConfigBytes)
	}
	return nil
}
