# SPDX-License-Identifier: Apache-2.0
"""How clients and jobs reach a Lakeward server: HTTP for control, Flight for rows."""
