# SPDX-License-Identifier: Apache-2.0
"""Tables: create, alter, drop, list. All DDL goes through federation, so that lake and hot store stay alike."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from lakeward.model import Column, TablePath, of_table
from lakeward.protocol.auth import Role, Token
from lakeward.protocol.routes import DEFINE, TABLE, TABLES
from lakeward.protocol.tables import AlterTable, CreateTable, DefineTable, TableAnswer
from lakeward.server.admission.auth import caller, require
from lakeward.server.definetable import describe_table
from lakeward.server.lakerights import check_altered, check_new_table
from lakeward.server.messages import answer, check_fields, described, read_message
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    router = APIRouter(tags=["tables"])
    may_read, may_change = [require(services.tokens, Role.READ)], [require(services.tokens, Role.ADMIN)]

    def create(message: CreateTable, token: Token) -> TableAnswer:
        services.quota.check_new(token, message.path, message.descriptor, services.store)
        check_new_table(services, token, message.path, message.descriptor.properties)
        return services.federation.create(message)

    def alter(path: TablePath, message: AlterTable, token: Token) -> TableAnswer:
        check_altered(services, token, path, message.properties)
        services.quota.check_change(token, path, message, services.store)
        return services.federation.alter(path, message)

    @router.get(TABLES, dependencies=may_read)
    def list_tables(request: Request) -> JSONResponse:
        """Every table that the token may use, in name order."""
        token = caller(request)
        tables = services.store.load_tables()
        return answer({"tables": [t.to_json() for t in tables if token.may_use(t.path)]})

    @router.post(TABLES, dependencies=may_change, status_code=201, openapi_extra=described(CreateTable))
    async def create_table(request: Request) -> JSONResponse:
        """Makes a table, in the lake first where it has one."""
        message = await read_message(request, CreateTable, exact=True)
        request.state.table = message.path
        caller(request).check_table(message.path, f"creating {message.path}")
        made_table = await services.lake_threads.ask(request, create, message, caller(request))
        return answer(made_table, status=201 if made_table.created else 200)

    @router.post(DEFINE, dependencies=may_change, status_code=201, openapi_extra=described(DefineTable))
    async def define_table(table: str, request: Request) -> JSONResponse:
        """Makes a table from columns as in SQL: `id bigint not null, total int`."""
        message = await read_message(request, DefineTable, exact=True)
        with of_table(table):
            asked = CreateTable(path=TablePath.parse(table), descriptor=describe_table(message))
        return answer(await services.lake_threads.ask(request, create, asked, caller(request)), status=201)

    @router.patch(TABLE, dependencies=may_change, openapi_extra=described(AlterTable))
    async def alter_table(table: str, request: Request) -> JSONResponse:
        """Changes columns by `AlterTable`; sets or removes properties. With `dry_run` it answers the plan alone."""
        message = await read_message(request, AlterTable, exact=True)
        for column in message.add_columns:
            check_fields(column, Column.from_json(column).to_json(), "AlterTable.add_columns")
        altered = services.lake_threads.ask(request, alter, TablePath.parse(table), message, caller(request))
        return answer(await altered)

    @router.delete(TABLE, dependencies=may_change, status_code=204)
    async def drop_table(request: Request, table: str, with_lake: bool = False) -> Response:
        """Removes the hot side; the lake table stays, unless `with_lake`, which also removes one that stayed before."""
        drop = services.federation.drop
        await services.lake_threads.ask(request, drop, TablePath.parse(table), with_lake=with_lake)
        return Response(status_code=204)

    return router
