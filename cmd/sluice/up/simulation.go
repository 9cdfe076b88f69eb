// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/kwok"
)

// simulationNamespace holds the accounts of what stands in for kubelets.
const simulationNamespace = "sluice-sim"

func simulationAccounts() ([]*unstructured.Unstructured, error) {
	namespace := []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + simulationNamespace + "}\n")
	return decode(namespace, kwok.RBAC, fakekubelet.RBAC)
}

// nodes describes n simulated machines: dgx-1, dgx-3, ... of pool dgx with whole
// GPUs, dgx-2, dgx-4, ... of pool dgx-mig, each GPU cut in the balanced way.
func nodes(n int) []fakekubelet.Node {
	list := make([]fakekubelet.Node, 0, n)
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("dgx-%d", i)
		if i%2 == 1 {
			list = append(list, fakekubelet.DGXA100(name, "dgx"))
		} else {
			list = append(list, fakekubelet.DGXA100Balanced(name, "dgx-mig"))
		}
	}
	return list
}
