"""The addresses of the project."""

from django.contrib import admin
from django.urls import path
from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/<str:number>", views.order),
]
