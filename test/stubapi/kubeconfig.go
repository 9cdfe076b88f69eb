// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes how to reach a server to a file, for a process of its
// own.
func WriteKubeconfig(config *rest.Config, file string) error {
	const it = "stub"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[it] = &clientcmdapi.Cluster{Server: config.Host}
	kubeconfig.AuthInfos[it] = &clientcmdapi.AuthInfo{}
	kubeconfig.Contexts[it] = &clientcmdapi.Context{Cluster: it, AuthInfo: it}
	kubeconfig.CurrentContext = it
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		return fmt.Errorf("stub API server: kubeconfig: %w", err)
	}
	return nil
}
