# SPDX-License-Identifier: Apache-2.0
"""The HTTP resources. Each module has one function `router(services) -> APIRouter`; `app` includes them all."""
