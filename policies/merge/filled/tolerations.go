// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import (
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/policies/merge/value"
)

// tolerations are open as long as there is none but the standard ones.
func tolerations(_ Cluster, _ Place, v any) bool {
	for _, each := range value.List(v) {
		if !StandardToleration(each) {
			return false
		}
	}
	return true
}

// StandardToleration tells whether DefaultTolerationSeconds adds this one: to
// stay for 300 seconds on a node that is not ready, or not reachable.
func StandardToleration(v any) bool {
	m, key := value.Map(v), value.Text(value.Map(v)["key"])
	return len(m) == 4 && standardTaint(key) &&
		value.Text(m["operator"]) == string(corev1.TolerationOpExists) &&
		value.Text(m["effect"]) == string(corev1.TaintEffectNoExecute) &&
		value.Equal(m["tolerationSeconds"], 300)
}

func standardTaint(key string) bool {
	return key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable
}

// KeepsOut tells whether this toleration keeps DefaultTolerationSeconds from
// adding the standard one.
func KeepsOut(toleration, standard any) bool {
	key, effect := value.Text(value.Map(toleration)["key"]), value.Text(value.Map(toleration)["effect"])
	return (key == "" || key == value.Text(value.Map(standard)["key"])) &&
		(effect == "" || effect == string(corev1.TaintEffectNoExecute))
}
